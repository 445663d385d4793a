package gateway_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
)

// envoy is what is read of Envoy's configuration.
type envoy struct {
	StaticResources struct {
		Listeners []struct {
			FilterChains []struct {
				Filters []struct {
					TypedConfig connectionManager `yaml:"typed_config"`
				}
			} `yaml:"filter_chains"`
		}
		Clusters []struct{ Name string }
	} `yaml:"static_resources"`
}

type connectionManager struct {
	CommonHTTPProtocolOptions struct {
		HeadersWithUnderscoresAction string `yaml:"headers_with_underscores_action"`
	} `yaml:"common_http_protocol_options"`
	RouteConfig struct {
		RequestHeadersToRemove []string `yaml:"request_headers_to_remove"`
	} `yaml:"route_config"`
	HTTPFilters []struct {
		Name        string
		TypedConfig envoyFilter `yaml:"typed_config"`
	} `yaml:"http_filters"`
}

// envoyFilter has what each of the filters has.
type envoyFilter struct {
	Mutations struct { // of header_mutation
		RequestMutations []struct {
			Remove string
			Append *struct {
				Header       keyValue
				AppendAction string `yaml:"append_action"`
			}
		} `yaml:"request_mutations"`
	}

	FailureModeAllow bool                  `yaml:"failure_mode_allow"` // of ext_authz, as the rest
	StatusOnError    struct{ Code string } `yaml:"status_on_error"`
	AllowedHeaders   matchers              `yaml:"allowed_headers"`
	HTTPService      *struct {
		ServerURI struct {
			URI, Cluster, Timeout string
		} `yaml:"server_uri"`
		PathPrefix           string `yaml:"path_prefix"`
		AuthorizationRequest struct {
			HeadersToAdd []keyValue `yaml:"headers_to_add"`
		} `yaml:"authorization_request"`
		AuthorizationResponse struct {
			AllowedUpstreamHeaders matchers `yaml:"allowed_upstream_headers"`
			AllowedClientHeaders   matchers `yaml:"allowed_client_headers"`
		} `yaml:"authorization_response"`
	} `yaml:"http_service"`
}

type keyValue struct{ Key, Value string }

type matchers struct {
	Patterns []struct{ Exact, Prefix string }
}

// match tells whether m lists name, which Envoy has in lower case.
func (m matchers) match(name string) bool {
	name = strings.ToLower(name)
	for _, p := range m.Patterns {
		if p.Exact == name || p.Prefix != "" && strings.HasPrefix(name, p.Prefix) {
			return true
		}
	}
	return false
}

// ofEnvoy are tokend's settings that deploy/envoy/tokend.yaml goes with.
var ofEnvoy = []string{
	"GATEWAY_METHOD_HEADER=X-Forwarded-Method", "GATEWAY_PURPOSE_HEADER=Tokend-Purpose", "GATEWAY_ALLOWED_STATUS=200",
}

// envoy puts before s what asks as Envoy does, by the file of deploy/envoy.
func (s *site) envoy() {
	s.t.Helper()
	s.flat = true
	var file envoy
	readFile(s.t, "envoy/tokend.yaml", replace{"'Bearer ${TOKEND_GATEWAY_KEY}'": "'Bearer " + program.ServiceKey() + "'"}, &file)
	manager := file.StaticResources.Listeners[0].FilterChains[0].Filters[0].TypedConfig
	var names []string
	for _, f := range manager.HTTPFilters {
		names = append(names, strings.TrimPrefix(f.Name, "envoy.filters.http."))
	}
	if got := strings.Join(names, " "); got != "header_mutation ext_authz router" {
		s.t.Fatalf("the filters are %s", got)
	}
	mutation, authz := manager.HTTPFilters[0].TypedConfig, manager.HTTPFilters[1].TypedConfig
	if authz.FailureModeAllow || authz.StatusOnError.Code != "ServiceUnavailable" || authz.HTTPService.ServerURI.Cluster != file.StaticResources.Clusters[1].Name {
		s.t.Fatalf("ext_authz is %+v", authz)
	}
	s.before(func(r *http.Request) *http.Response {
		if manager.CommonHTTPProtocolOptions.HeadersWithUnderscoresAction == "DROP_HEADER" {
			maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return strings.Contains(name, "_") })
		}
		r.Header.Del("Connection") // Envoy's connection to the service is its own
		mutation.mutate(r)
		if refusal := authz.ask(s.tokend.URL, r); refusal != nil {
			return refusal
		}
		for _, name := range manager.RouteConfig.RequestHeadersToRemove {
			r.Header.Del(name)
		}
		return nil
	})
}

func (f *envoyFilter) mutate(r *http.Request) {
	for _, m := range f.Mutations.RequestMutations {
		if m.Append == nil {
			r.Header.Del(m.Remove)
			continue
		}
		if m.Append.AppendAction != "OVERWRITE_IF_EXISTS_OR_ADD" {
			panic(m.Append.AppendAction)
		}
		r.Header.Set(m.Append.Header.Key, strings.ReplaceAll(m.Append.Header.Value, "%REQ(:METHOD)%", r.Method))
	}
}

// ask asks about r as Envoy's ext_authz does over HTTP: by r's own method, on r's path behind
// the prefix, without a body, with the headers of r that are listed, of which those that stand
// twice are joined, and others in place of r's. 200 alone lets r through.
func (f *envoyFilter) ask(at string, r *http.Request) (refusal *http.Response) {
	service := f.HTTPService
	req, err := http.NewRequestWithContext(r.Context(), r.Method, at+service.PathPrefix+r.URL.RequestURI(), nil)
	if err != nil {
		return empty(http.StatusServiceUnavailable)
	}
	req.Host = r.Host
	for name, values := range r.Header {
		if name == "Authorization" || f.AllowedHeaders.match(name) {
			req.Header.Set(name, strings.Join(values, ","))
		}
	}
	for _, h := range service.AuthorizationRequest.HeadersToAdd {
		req.Header.Set(h.Key, h.Value)
	}
	resp, err := direct.Do(req)
	if err != nil {
		return empty(http.StatusServiceUnavailable)
	}
	switch {
	case resp.StatusCode >= http.StatusInternalServerError:
		resp.Body.Close()
		return empty(http.StatusServiceUnavailable)
	case resp.StatusCode != http.StatusOK:
		for name := range resp.Header {
			if !service.AuthorizationResponse.AllowedClientHeaders.match(name) {
				resp.Header.Del(name)
			}
		}
		return resp
	}
	resp.Body.Close()
	for name, values := range resp.Header {
		if service.AuthorizationResponse.AllowedUpstreamHeaders.match(name) {
			r.Header[name] = values
		}
	}
	return nil
}

// TestEnvoy asks as Envoy does.
func TestEnvoy(t *testing.T) {
	s := newSite(t, ofEnvoy...)
	s.envoy()
	s.sendsOnce(t, "POST", "PUT", "PATCH", "DELETE")
	s.takesADoubleClick(t)
	s.isNotFooled(t)
	s.refusesTwoTokens("token_invalid", "stop")
	for _, path := range []string{"/orders/7/items?a=b", "/orders//x", "/orders/a%2Fb", "/orders/../v1/tokens"} {
		s.through(s.send("POST", path, headers("Tokend-Token", s.token("alice").Value)))
	}
	tok := s.token("alice")
	s.redis.Kill()
	for range 2 {
		if a := s.send("POST", "/orders", headers("Tokend-Token", tok.Value)); a.status != http.StatusServiceUnavailable || len(s.orders.take()) != 0 {
			t.Errorf("without Redis or tokend: %v", a)
		}
		s.tokend.Close()
	}
}

// TestEnvoyTakes200 holds why gateway.allowed_status is in the file: by default tokend's answer
// is a refusal to Envoy.
func TestEnvoyTakes200(t *testing.T) {
	s := newSite(t, ofEnvoy[:2]...)
	s.envoy()
	if a := s.send("GET", "/orders", http.Header{}); a.status != http.StatusNoContent || len(s.orders.take()) != 0 {
		t.Errorf("%v", a)
	}
}
