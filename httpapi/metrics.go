package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/tokend/httpapi/wire"
)

// Metrics counts what the service does. Label values are bounded, whatever comes in.
type Metrics struct {
	registry   *prometheus.Registry
	outcomes   outcomeCounters
	requests   *prometheus.HistogramVec
	redis      *prometheus.HistogramVec
	keyUses    map[string]prometheus.Counter
	takeovers  prometheus.Counter
	unfinished prometheus.Counter
}

// Pool is the state of the connections to Redis.
type Pool struct{ Total, Idle, Waiting uint32 }

// NewMetrics returns metrics of a build named version, whose tokens are signed and verified
// by the keys keyIDs; pool tells the state of the connections to Redis.
func NewMetrics(version, goVersion string, keyIDs []string, pool func() Pool) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		outcomes: newOutcomeCounters(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tokend_http_request_seconds", Help: "What calls took, by call and HTTP status.", Buckets: seconds,
		}, []string{"op", "status"}),
		redis: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tokend_redis_seconds", Help: "What calls to Redis took with their re-sends, faults included, by call.", Buckets: seconds,
		}, []string{"op"}),
		keyUses: make(map[string]prometheus.Counter),
		takeovers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tokend_takeovers_total", Help: "Claims that were taken over after their lease had ended.",
		}),
		unfinished: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tokend_unfinished_total", Help: "Calls that found a claim committed and never completed.",
		}),
	}
	uses := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tokend_key_uses_total", Help: "Tokens signed or verified, by signing key.",
	}, []string{"key_id"})
	for _, id := range keyIDs {
		m.keyUses[id] = uses.WithLabelValues(id)
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tokend_build_info", Help: "1, labelled with what is running.",
	}, []string{"version", "go_version"})
	build.WithLabelValues(version, goVersion).Set(1)
	for _, op := range ops {
		for _, kind := range wire.Kinds() {
			for _, reason := range invalidReasons {
				m.outcomes.at(op, string(kind.Code), reason) // at 0, so that a first one is an increase
			}
		}
	}
	m.registry.MustRegister(m.outcomes, m.requests, m.redis, m.takeovers, m.unfinished, uses, build, poolCollector{pool},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// seconds are the histograms' buckets: a call is expected in a millisecond or two, and
// given up within redis.timeout.
var seconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

// Handler serves the metrics in Prometheus's formats.
func (m *Metrics) Handler() http.Handler {
	metrics := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setCommon(w.Header(), wire.RequestID(r.Header))
		metrics.ServeHTTP(w, r)
	})
}

// ObserveRedis notes what a call to Redis took.
func (m *Metrics) ObserveRedis(op string, took time.Duration) {
	m.redis.WithLabelValues(op).Observe(took.Seconds())
}

func (m *Metrics) request(c *call, took time.Duration) {
	m.requests.WithLabelValues(c.op, statusText(c.status)).Observe(took.Seconds())
}

func (m *Metrics) outcome(op string, o *outcome) {
	m.outcomes.at(op, o.code, o.reason).Inc()
	if o.takeover && !o.replayed {
		m.takeovers.Inc()
	}
	if o.code == string(wire.CodeClaimUnfinished) {
		m.unfinished.Inc()
	}
}

// statusText spares the usual statuses an allocation.
func statusText(status int) string {
	switch status {
	case http.StatusOK:
		return "200"
	case http.StatusCreated:
		return "201"
	case http.StatusConflict:
		return "409"
	}
	return strconv.Itoa(status)
}

func (m *Metrics) keyUsed(id string) {
	if c := m.keyUses[id]; c != nil {
		c.Inc()
	}
}

// outcomeCounters are tokend_outcomes_total: one name, and a label reason for
// token_invalid only. They are two vectors behind one collector that describes nothing,
// since a registry takes a name with one set of labels only where it is described.
type outcomeCounters struct{ plain, invalid *prometheus.CounterVec }

func newOutcomeCounters() outcomeCounters {
	opts := prometheus.CounterOpts{
		Name: "tokend_outcomes_total",
		Help: "Outcomes by call and code; token_invalid by reason too: malformed, forged or unknown_key.",
	}
	return outcomeCounters{
		prometheus.NewCounterVec(opts, []string{"op", "code"}),
		prometheus.NewCounterVec(opts, []string{"op", "code", "reason"}),
	}
}

func (outcomeCounters) Describe(chan<- *prometheus.Desc) {}

func (o outcomeCounters) Collect(ch chan<- prometheus.Metric) {
	o.plain.Collect(ch)
	o.invalid.Collect(ch)
}

func (o outcomeCounters) at(op, code, reason string) prometheus.Counter {
	if code == string(wire.CodeTokenInvalid) {
		return o.invalid.WithLabelValues(op, code, reason)
	}
	return o.plain.WithLabelValues(op, code)
}

// poolCollector reads the pool when it is asked.
type poolCollector struct{ pool func() Pool }

var poolDesc = prometheus.NewDesc("tokend_redis_pool", "Connections to Redis by state: in_use, idle, and calls that had to wait for one so far.", []string{"state"}, nil)

func (poolCollector) Describe(ch chan<- *prometheus.Desc) { ch <- poolDesc }

func (c poolCollector) Collect(ch chan<- prometheus.Metric) {
	p := c.pool()
	for _, v := range []struct {
		state string
		n     uint32
	}{{"in_use", p.Total - min(p.Idle, p.Total)}, {"idle", p.Idle}, {"waited", p.Waiting}} {
		ch <- prometheus.MustNewConstMetric(poolDesc, prometheus.GaugeValue, float64(v.n), v.state)
	}
}
