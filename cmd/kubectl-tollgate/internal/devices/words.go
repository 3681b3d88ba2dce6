package devices

// AttributeWords returns the attributes of a device and what was taken from it, each with
// the patch that did so: driver/model=A100 (patch racks).
func (d *Device) AttributeWords() []string { return attributes(d) }

// CapacityWords is AttributeWords for the capacity.
func (d *Device) CapacityWords() []string { return capacity(d) }

// NodeWords says from where the device can be used: the name of a node, <all>, <selector>
// or <none>.
func (d *Device) NodeWords() string { return node(d) }
