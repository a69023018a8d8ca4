package cruiseaws

import (
	"net/http"
	"testing"

	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/a7df5faa/cruise"
)

// The SDK asks for the delay of a long poll even if there is to be no retry. An
// error keeps it from a sleep then, and leaves the response as it was.
func TestNoDelayAfterGivingUp(t *testing.T) {
	for name, tc := range map[string]struct {
		attempts int
		want     string // the rest of the header
	}{
		"a retry": {2, ""},
		"no more": {1, "700"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &operation{throttle: cruise.Must(New(WithRetrierOptions(cruise.WithMaxAttempts(tc.attempts))))}
			_, err := o.GetAttemptToken(t.Context())
			require.NoError(t, err)
			defer o.stop()
			failed := &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{
				StatusCode: 500, Header: http.Header{retryAfterHeader: {"700"}}}}}
			require.True(t, o.IsErrorRetryable(failed))
			_, refused := o.GetRetryToken(t.Context(), failed)
			delay, none := o.RetryDelay(0, failed)
			assert.Zero(t, delay)
			assert.Equal(t, refused == nil, none == nil)
			assert.Equal(t, tc.want, failed.Response.Header.Get(retryAfterHeader))
		})
	}
}
