package device

import (
	resourcev1 "k8s.io/api/resource/v1"
)

// criteria says which names a selector asks for.
type criteria uint8

const (
	byDriver criteria = 1 << iota
	byPool
	byName

	// combinations is how many sets of criteria there are.
	combinations = 1 << iota
)

// criteriaSets has the bit 1<<asks for each of some sets of criteria.
type criteriaSets uint8

const (
	anyCriteria      criteriaSets = 1<<combinations - 1
	criteriaWithName              = anyCriteria &^ (1<<byName - 1)
)

// Selector selects devices by name. It is comparable; the zero Selector selects
// every device (DE-20). A name that is set and empty selects nothing, because no
// device has such a name.
type Selector struct {
	id   ID
	asks criteria
}

// SelectorOf returns the selector of a DeviceTaintRule; false means that there is
// none, which selects nothing (DE-20, TR-02).
func SelectorOf(selector *resourcev1.DeviceTaintSelector) (Selector, bool) {
	if selector == nil {
		return Selector{}, false
	}
	var s Selector
	if selector.Driver != nil {
		s.id.Driver, s.asks = *selector.Driver, s.asks|byDriver
	}
	if selector.Pool != nil {
		s.id.Pool, s.asks = *selector.Pool, s.asks|byPool
	}
	if selector.Device != nil {
		s.id.Name, s.asks = *selector.Device, s.asks|byName
	}
	return s, true
}

// Matches reports whether the selector selects a device.
func (s Selector) Matches(id ID) bool {
	return s == narrow(id, s.asks)
}

// Driver returns the driver whose devices are selected; false means any.
func (s Selector) Driver() (string, bool) { return s.id.Driver, s.asks&byDriver != 0 }

// Pool returns the pool whose devices are selected; false means any.
func (s Selector) Pool() (string, bool) { return s.id.Pool, s.asks&byPool != 0 }

// Name returns the name of the devices that are selected; false means any.
func (s Selector) Name() (string, bool) { return s.id.Name, s.asks&byName != 0 }

// narrow returns the selector that asks for the given names of a device.
func narrow(id ID, asks criteria) Selector {
	s := Selector{asks: asks}
	if asks&byDriver != 0 {
		s.id.Driver = id.Driver
	}
	if asks&byPool != 0 {
		s.id.Pool = id.Pool
	}
	if asks&byName != 0 {
		s.id.Name = id.Name
	}
	return s
}

// MatchesPool reports whether the selector may select devices of a pool.
func (s Selector) MatchesPool(driver, pool string) bool {
	return narrow(s.id, s.asks&^byName).Matches(ID{Driver: driver, Pool: pool})
}
