package cruiseaws

import (
	"maps"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/stretchr/testify/assert"

	"github.com/a7df5faa/cruise/internal/signals"
)

// Where there is no SDK to ask, throttles are known by a copy of its list.
func TestThrottleCodesMatchTheSDK(t *testing.T) {
	assert.ElementsMatch(t, slices.Collect(maps.Keys(retry.DefaultThrottleErrorCodes)), signals.AWSThrottles)
}
