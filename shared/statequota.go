package shared

import "math"

// windowed reports whether a quota belongs to a window. Shortly before the reset a bucket looks the
// same, so a window whose rest is spread stays one.
func (s *State) windowed(q Request) bool {
	if q.Quota.Reset <= 0 {
		return false
	}
	left := int64(q.Quota.Remaining)
	reset := s.QuotaAt + micros(q.Quota.Reset)
	slack := micros(resetSlack) + micros(q.Quota.Reset)/100
	if moved := reset - s.ResetAt; max(moved, -moved) > slack {
		s.ResetAt, s.ResetLeft = reset, left
		if micros(q.Quota.Reset) <= shortWindow {
			s.ResetLeft = -1
		}
		if s.Unspread > s.Rate { // the slots of the old window may be an hour away
			s.void()
			s.change(&q.Law, float64(s.Unspread), whyQuota)
		}
		s.Unspread = 0
	}
	used, limit := s.ResetLeft-left, int64(q.Quota.Limit)
	return used >= max(rationAfter, min(limit, s.ResetLeft)/4) &&
		(s.Unspread > 0 || float64(micros(q.Quota.Reset))*float64(used) > float64(slack)*float64(limit-left))
}

// ration makes the rest of a window last until its reset, once half of it is used.
func (s *State) ration(q Request) {
	if limit := q.Quota.Limit; limit > 0 && q.Quota.Remaining > limit/2 {
		return
	}
	// If nothing is left, one call goes after the reset.
	pace := max(q.cost(), float64(q.Quota.Remaining)) * 1e12 / float64(micros(q.Quota.Reset))
	if pace >= float64(s.Rate) {
		return
	}
	if s.Ceiling == 0 {
		s.Ceiling = s.Rate
	}
	s.Unspread = max(s.Unspread, min(s.Rate, s.Ceiling))
	s.change(&q.Law, pace, whyQuota)
}

// hint follows a quota. It returns how far the rest is above the reserve, relative to that, and
// reports whether it has set the rate. A low rest that cuts do not change tells nothing.
func (s *State) hint(t int64, q Request) (spare float64, settled bool) {
	r, left, limit := float64(s.Rate), int64(q.Quota.Remaining), float64(q.Quota.Limit)
	if s.ResetLeft < 0 {
		return 0, false
	}
	// Remaining is from before the calls of a period.
	reserve := max(hintLeast, 2*(1+math.Floor(r*reportPeriod/1e12)))
	if limit > 0 {
		if limit < reserve {
			return 0, false
		}
		reserve = min(reserve, max(1, limit/4))
	}
	was := s.HintLeft
	if float64(left) >= reserve {
		if q.Quota.Reset > 0 || left >= was {
			spare = min(hintMost, float64(left)/reserve-1)
		}
		s.HintAt, s.HintLeft, s.HintSame = t, left, 0
		return spare, false
	}
	since := float64(t-s.HintAt) / 1e6
	if s.Ceiling > 0 && since < max(hintGaps*q.cost()*1e6/r, cutGap/1e6) {
		return 0, s.HintSame < hintSame // the last decision has not shown yet
	}
	s.HintAt, s.HintLeft = t, left
	switch {
	case s.Ceiling == 0 || left < was:
		s.Ceiling, s.HintSame = s.Rate, 0
		r *= hintCut
	case left == was:
		if s.HintSame == hintSame {
			return 0, false
		}
		s.HintSame++
		r *= hintCut
	case left > was+1:
		s.HintSame = 0
		r += min(hintGrowMost*r, float64(hintGrow*math.Sqrt(r*1e6)*since))
	}
	s.change(&q.Law, r, whyQuota)
	return 0, true
}
