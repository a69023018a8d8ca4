package shared

import "math"

// surplus is the growth that a quota allows.
type surplus struct {
	spare  float64 // Remaining above the reserve, relative to the reserve
	refill float64 // growth, relative to the rate, since used calls have come back
}

// windowed reports whether a quota belongs to a window.
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
		(used >= limit/4 || float64(micros(q.Quota.Reset))*float64(used) > float64(slack)*float64(limit-left))
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

// hint follows a quota. It returns the growth that the quota allows, and reports whether it has
// set the rate.
func (s *State) hint(t int64, q Request) (more surplus, settled bool) {
	r, left, limit := float64(s.Rate), int64(q.Quota.Remaining), float64(q.Quota.Limit)
	if s.ResetLeft < 0 {
		return surplus{}, false
	}
	// Remaining is from before the calls of a period.
	untold := 2 * (1 + math.Floor(r*reportPeriod/1e12))
	reserve := max(hintLeast, untold)
	if limit > 0 {
		if limit < reserve {
			return surplus{}, false
		}
		reserve = min(reserve, max(1, limit/4))
	}
	if s.flat(left, min(reserve, hintLeast)) {
		return surplus{}, false
	}
	was := s.HintLeft
	if float64(left) >= reserve {
		if s.Elsewhere == 0 {
			if q.Quota.Reset > 0 || left >= was {
				more.spare = min(hintMost, float64(left)/reserve-1)
			}
			more.refill = s.refilled(left, int64(q.Quota.Limit), int64(untold))
		}
		s.HintAt, s.HintLeft = t, left
		return more, false
	}
	since := float64(t-s.HintAt) / 1e6
	if s.Ceiling > 0 && since < max(hintGaps*q.cost()*1e6/r, cutGap/1e6) {
		return surplus{}, true // the last decision has not shown yet
	}
	switch {
	case s.Ceiling == 0 || left <= was:
		if s.Ceiling == 0 || left < was {
			s.Ceiling = s.Rate
		}
		s.change(&q.Law, hintCut*r, whyQuota)
		s.LeftFlat++
	case left > was+1:
		s.change(&q.Law, r+min(hintGrowMost*r, float64(hintGrow*math.Sqrt(r*1e6)*since)), whyQuota)
	}
	s.HintAt, s.HintLeft = t, left
	return surplus{}, true
}

// refilled returns the growth, relative to the rate, since used calls of a limit have come back.
func (s *State) refilled(left, limit, untold int64) (more float64) {
	if limit <= 0 {
		return 0
	}
	part := max(rationAfter, limit/4, untold)
	step := left-s.HintLeft >= part
	if !step && s.Total-s.RefillTotal < max(hintLeast, part) {
		return 0
	}
	if !step && left >= s.RefillLow {
		used := max(0, 1-float64(left)/float64(limit))
		more = min(1, max(0, refillTo/used-1))
	}
	s.RefillTotal, s.RefillLow = s.Total, left
	return more
}

// flat reports whether less than enough is left however slowly calls come, until more is seen.
func (s *State) flat(left int64, enough float64) bool {
	flat := s.LeftFlat >= flatAfter
	if flat && left <= s.LeftStays {
		return true
	}
	if flat || float64(left) >= enough {
		s.LeftFlat = 0
	}
	if s.LeftFlat == 0 || left > s.LeftStays {
		s.LeftStays = left
	}
	return false
}
