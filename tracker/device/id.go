package device

// ID names one device. Names are compared byte by byte (DE-14) and never joined
// into one string, so that no two devices can be taken for each other, whatever
// characters their names hold.
type ID struct {
	Driver string
	Pool   string
	Name   string
}

// String returns driver/pool/device, for people.
func (id ID) String() string {
	return id.Driver + "/" + id.Pool + "/" + id.Name
}
