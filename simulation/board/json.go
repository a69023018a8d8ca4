package board

import (
	"encoding/json"
	"io"
	"math"
	"slices"

	"github.com/a7df5faa/cruise/simulation/score"
)

// figure is a number that JSON may lack.
type figure float64

// MarshalJSON writes null for a figure that makes no sense.
func (f figure) MarshalJSON() ([]byte, error) {
	if v := float64(f); math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// figures are a score by the names of its metrics.
func figures(s score.Score) map[string]figure {
	out := map[string]figure{}
	for _, m := range score.Metrics {
		out[m.Name] = figure(*m.Of(&s))
	}
	return out
}

type jsonClient struct {
	Name      string `json:"name"`
	About     string `json:"about"`
	Own       bool   `json:"own,omitempty"`
	Yardstick bool   `json:"yardstick,omitempty"`
}

type jsonScenario struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Setup string `json:"setup"`
}

type jsonResult struct {
	Scenario string            `json:"scenario"`
	Client   string            `json:"client"`
	Runs     int               `json:"runs"`
	Better   bool              `json:"better,omitempty"` // than the own client
	Median   map[string]figure `json:"median"`
	Low      map[string]figure `json:"low"`
	High     map[string]figure `json:"high"`
}

type jsonRow struct {
	Group     string            `json:"group"`
	Client    string            `json:"client"`
	Scenarios int               `json:"scenarios"`
	Means     map[string]figure `json:"means"`
	LowUse    *int              `json:"low_use"` // null if the pacer did not run
	Throttled int               `json:"much_throttled"`
	Unfair    int               `json:"unfair"`
	Better    int               `json:"better"`
}

type jsonTarget struct {
	Where   string `json:"where"`
	What    string `json:"what"`
	Value   figure `json:"value"`
	Wanted  string `json:"wanted"`
	Verdict string `json:"verdict"`
}

// JSON writes everything that the board holds.
func (b *Board) JSON(w io.Writer) error {
	var out struct {
		Clients   []jsonClient   `json:"clients"`
		Scenarios []jsonScenario `json:"scenarios"`
		Results   []jsonResult   `json:"results"`
		Means     []jsonRow      `json:"means"`
		Targets   []jsonTarget   `json:"targets"`
	}
	for _, c := range b.Clients {
		out.Clients = append(out.Clients, jsonClient{c.Name, c.About, c.Own, c.Yardstick})
	}
	for _, s := range b.Scenarios() {
		out.Scenarios = append(out.Scenarios, jsonScenario{s.Name, s.About, s.Setup()})
	}
	for _, r := range b.Results {
		out.Results = append(out.Results, jsonResult{r.Scenario.Name, r.Client, r.Runs, b.Better(r), figures(r.Median), figures(r.Low), figures(r.High)})
	}
	for _, r := range slices.Concat(b.Rows()...) {
		row := jsonRow{r.Group, r.Client, r.Scenarios, figures(r.Means), nil, r.Collapses.Throttled, r.Collapses.Jain, r.Better}
		if len(b.Pacer) > 0 {
			row.LowUse = &r.Collapses.Use
		}
		out.Means = append(out.Means, row)
	}
	for _, t := range Targets {
		v := t.Of(b)
		out.Targets = append(out.Targets, jsonTarget{t.Where, t.What, figure(v), t.Wanted(), t.Verdict(v)})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	return e.Encode(out)
}
