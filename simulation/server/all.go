package server

import "time"

// all is several limits at once: a request passes if each lets it.
type all []model

func (a all) take(now time.Duration) bool {
	if a.wait(now) > 0 {
		return false
	}
	for _, m := range a {
		m.take(now)
	}
	return true
}

func (a all) wait(now time.Duration) time.Duration {
	longest := time.Duration(0)
	for _, m := range a {
		longest = max(longest, m.wait(now))
	}
	return longest
}

// quota is that of the first, which is the one that a server tells of.
func (a all) quota(now time.Duration) (limit, left float64, reset time.Duration) {
	return a[0].quota(now)
}
