package client

import (
	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/delay"

	"github.com/a7df5faa/cruise/simulation/engine"
)

// The rules of Heroku's Ruby gem, and of the AutoSleeper, as cruise has them: one delay that all
// callers of a process share at every moment. They stand for those clients on the board, so none
// counts as this project's own in the comparison. The gem's loop is another one, see gem in
// delays_test.go, and their descriptions must say so.

// HerokuGradual is the rule of the gem's ExponentialIncreaseGradualDecrease.
func HerokuGradual() engine.Client {
	return delays("heroku-gradual", "cruise's delay.Limiter with the Ruby gem's rule of gradual decrease: a throttle raises the shared delay by 0.8 s and a fifth, a success lowers it by 0.8 s; the gem's own loop, in which a call keeps its delay while it is retried, has half the throttles with it", delay.HerokuGradual())
}

// HerokuProportional is the rule of the gem's ExponentialIncreaseProportionalDecrease.
func HerokuProportional() engine.Client {
	return delays("heroku-proportional", "cruise's delay.Limiter as in heroku-gradual, but a success lowers the delay by a 4,500th; the gem's own loop has 1.5 times as many throttles", delay.HerokuProportional())
}

// HerokuRemaining is the rule of the gem's ExponentialIncreaseProportionalRemainingDecrease, which
// Heroku's own client uses. It learns only from a server that reports the rest of the quota; at
// others its delay never comes down.
func HerokuRemaining() engine.Client {
	return delays("heroku-remaining", "cruise's delay.Limiter as in heroku-gradual, but a success lowers the delay by the share of the quota that remains, if the server tells it; the gem's own loop has 1.5 times as many throttles", delay.HerokuRemaining())
}

// Autosleeper is responsive exponential backoff.
func Autosleeper() engine.Client {
	return delays("autosleeper", "responsive exponential backoff, by cruise's delay.Limiter: half a second, x1.5 for each throttle, x0.9 for 10 successes", delay.Responsive())
}

func delays(name, about string, rule delay.Rule) engine.Client {
	return engine.Client{
		Name: name, About: about,
		New: func(e engine.Env) engine.Process { return delayed(e, cruise.Must(delay.New(rule))) },
	}
}

// delayed returns a process with callers that share the limiter's delay.
func delayed(e engine.Env, l *delay.Limiter) engine.Process {
	return retrier(e, cruise.WithLimiter(l), cruise.WithoutBudget())
}

// HerokuBackoff is the gem's ExponentialBackoff: nothing is shared.
func HerokuBackoff() engine.Client {
	return engine.Client{
		Name:  "heroku-backoff",
		About: "the Ruby gem's plain retries, by cruise's Backoff: 0.8 s, a fifth more for each",
		New: func(e engine.Env) engine.Process {
			return retrier(e, cruise.WithoutLimiter(), cruise.WithoutBudget(),
				cruise.WithBackoff(delay.HerokuBackoff()), cruise.WithThrottleBackoff(delay.HerokuBackoff()))
		},
	}
}
