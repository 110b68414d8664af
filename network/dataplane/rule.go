package dataplane

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/pelago-dev/pelago/network/netns"
)

// ourRules returns the rules that have our protocol. One that somebody has added a
// condition to is not as any of ours, and goes.
func (s *space) ourRules() (map[rule]netlink.Rule, []netlink.Rule, error) {
	found := map[rule]netlink.Rule{}
	var odd []netlink.Rule
	for _, v4 := range families {
		list, err := netns.Whole(func() ([]netlink.Rule, error) { return s.kernel.RuleList(familyOf(v4)) })
		if err != nil {
			return nil, nil, fmt.Errorf("listing rules of %s: %w", s.name, err)
		}
		for _, k := range list {
			// A kernel without IPv6 answers with what it has.
			if k.Protocol != protocol || k.Family != familyOf(v4) {
				continue
			}
			r := rule{v4: v4, priority: max(k.Priority, 0), table: k.Table, mark: k.Mark, device: k.IifName}
			plain := k.Mask == nil || *k.Mask == 0xffffffff || k.Mark == 0
			switch {
			case k.Goto >= 0:
				plain = k.Goto == landPriority && k.Invert && k.Mark == markBits && k.Mask != nil && *k.Mask == markMask
				r.does, r.table, r.mark, k.Invert = leap, 0, 0, false
			case k.Table == 0:
				r.does = land
			}
			_, twice := found[r]
			if twice || !plain || k.Src != nil || k.Dst != nil || k.OifName != "" || k.Invert || k.Tos != 0 {
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
		switch w.does {
		case leap:
			mask := uint32(markMask)
			k.Goto, k.Invert, k.Mark, k.Mask = landPriority, true, markBits, &mask
		case land:
			k.Type = nl.FR_ACT_NOP
		}
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
