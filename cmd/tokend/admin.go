package main

import (
	"net/http"
	"net/http/pprof"

	"example.com/tokend/httpapi"
	"example.com/tokend/httpapi/wire"
)

// adminHandler serves the admin listener: metrics, and Go's profiles where profiles is
// set.
func adminHandler(m *httpapi.Metrics, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+wire.PathMetrics, m.Handler())
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}
