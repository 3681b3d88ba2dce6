package devices

// AttributeWords returns the set and removed attributes of a device, each with its patch:
// driver/model=A100 (patch racks).
func (d *Device) AttributeWords() []string { return attributes(d) }

// CapacityWords is AttributeWords for the capacity.
func (d *Device) CapacityWords() []string { return capacity(d) }

// NodeWords returns the nodes that can use the device: the name of a node, <all>, <selector> or
// <none>.
func (d *Device) NodeWords() string { return node(d) }
