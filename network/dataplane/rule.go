package dataplane

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// ourRules returns the rules that have our protocol. One that somebody has added a
// condition to is not as any of ours, and goes.
func (s *space) ourRules() (map[rule]netlink.Rule, []netlink.Rule, error) {
	found := map[rule]netlink.Rule{}
	var odd []netlink.Rule
	for _, v4 := range families {
		list, err := s.kernel.RuleList(familyOf(v4))
		if err != nil {
			return nil, nil, fmt.Errorf("listing rules of %s: %w", s.name, err)
		}
		for _, k := range list {
			// A kernel without IPv6 answers with what it has.
			if k.Protocol != protocol || k.Family != familyOf(v4) {
				continue
			}
			r := rule{v4: v4, priority: max(k.Priority, 0), table: k.Table, mark: k.Mark, device: k.IifName}
			_, twice := found[r]
			whole := k.Mask == nil || *k.Mask == 0xffffffff || k.Mark == 0
			if twice || !whole || k.Src != nil || k.Dst != nil || k.OifName != "" || k.Invert || k.Tos != 0 {
				odd = append(odd, k)
				continue
			}
			found[r] = k
		}
	}
	return found, odd, nil
}

func (s *space) addRules(wanted []rule) error {
	present, _, err := s.ourRules()
	if err != nil {
		return err
	}
	for _, w := range wanted {
		if _, ok := present[w]; ok {
			continue
		}
		k := netlink.NewRule()
		k.Family, k.Priority, k.Table, k.Mark, k.IifName, k.Protocol = familyOf(w.v4), w.priority, w.table, w.mark, w.device, protocol
		if err := s.wrote(w, "adding", s.kernel.RuleAdd(k)); err != nil {
			return err
		}
	}
	return nil
}

func (s *space) removeRules(wanted []rule) error {
	present, odd, err := s.ourRules()
	if err != nil {
		return err
	}
	for _, w := range wanted {
		delete(present, w)
	}
	for _, k := range present {
		odd = append(odd, k)
	}
	for _, k := range odd {
		if err := s.wrote(k, "removing", s.kernel.RuleDel(&k)); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}
