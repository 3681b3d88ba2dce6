package device

import "cmp"

// ID names one device. Names are compared byte by byte (DE-14) and never joined
// into one string, so that no two devices can be taken for each other, whatever
// characters their names hold.
type ID struct {
	Driver string
	Pool   string
	Name   string
}

// Device returns the ID of a device in a pool. The pool is an ID without the name of a device.
func (id ID) Device(name string) ID {
	id.Name = name
	return id
}

// String returns driver/pool/device, for people.
func (id ID) String() string {
	return id.Driver + "/" + id.Pool + "/" + id.Name
}

// Compare orders devices by driver, pool and name.
func Compare(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
}
