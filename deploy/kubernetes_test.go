package deploy_test

import (
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/tokend/httpapi/wire"
)

// The types below are as much of Kubernetes' as the manifests use, in its spelling: a member
// that they do not have is one that was spelt wrong.

type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   metadata
}

type metadata struct {
	Name                string
	Labels, Annotations map[string]string
}

type selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type deployment struct {
	object `yaml:",inline"`
	Spec   struct {
		Replicas             int
		RevisionHistoryLimit int `yaml:"revisionHistoryLimit"`
		Strategy             struct {
			Type          string
			RollingUpdate struct {
				MaxSurge       int `yaml:"maxSurge"`
				MaxUnavailable int `yaml:"maxUnavailable"`
			} `yaml:"rollingUpdate"`
		}
		Selector selector
		Template struct {
			Metadata metadata
			Spec     podSpec
		}
	}
}

type podSpec struct {
	ServiceAccountName            string `yaml:"serviceAccountName"`
	AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
	EnableServiceLinks            *bool  `yaml:"enableServiceLinks"`
	TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               struct {
		RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
		RunAsUser      int                   `yaml:"runAsUser"`
		RunAsGroup     int                   `yaml:"runAsGroup"`
		FSGroup        int                   `yaml:"fsGroup"`
		SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	TopologySpreadConstraints []struct {
		MaxSkew           int      `yaml:"maxSkew"`
		TopologyKey       string   `yaml:"topologyKey"`
		WhenUnsatisfiable string   `yaml:"whenUnsatisfiable"`
		LabelSelector     selector `yaml:"labelSelector"`
		MatchLabelKeys    []string `yaml:"matchLabelKeys"`
	} `yaml:"topologySpreadConstraints"`
	Containers []container
	Volumes    []struct {
		Name      string
		ConfigMap *struct{ Name string } `yaml:"configMap"`
		Secret    *struct {
			SecretName  string `yaml:"secretName"`
			DefaultMode int    `yaml:"defaultMode"`
		}
	}
}

type container struct {
	Name, Image string
	Args        []string
	Env         []struct{ Name, Value string }
	Ports       []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	LivenessProbe  probe `yaml:"livenessProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	Resources      struct {
		Requests, Limits map[string]string
	}
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		SubPath   string `yaml:"subPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`

	PeriodSeconds    int `yaml:"periodSeconds"`
	TimeoutSeconds   int `yaml:"timeoutSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
}

type service struct {
	object `yaml:",inline"`
	Spec   struct {
		Selector map[string]string
		Ports    []struct {
			Name       string
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
	}
}

type podDisruptionBudget struct {
	object `yaml:",inline"`
	Spec   struct {
		MaxUnavailable             int    `yaml:"maxUnavailable"`
		UnhealthyPodEvictionPolicy string `yaml:"unhealthyPodEvictionPolicy"`
		Selector                   selector
	}
}

type networkPolicy struct {
	object `yaml:",inline"`
	Spec   struct {
		PodSelector selector `yaml:"podSelector"`
		PolicyTypes []string `yaml:"policyTypes"`
		Ingress     []struct {
			From  []peer
			Ports []policyPort
		}
		Egress []struct {
			To    []peer
			Ports []policyPort
		}
	}
}

type peer struct {
	NamespaceSelector *selector `yaml:"namespaceSelector"`
	PodSelector       *selector `yaml:"podSelector"`
}

type policyPort struct {
	Protocol string
	Port     string // a number or a container's name for it
}

type serviceAccount struct {
	object                       `yaml:",inline"`
	AutomountServiceAccountToken *bool `yaml:"automountServiceAccountToken"`
}

type kustomization struct {
	APIVersion         string `yaml:"apiVersion"`
	Kind, Namespace    string
	Resources          []string
	ConfigMapGenerator []struct {
		Name  string
		Files []string
	} `yaml:"configMapGenerator"`
	Images []struct {
		Name    string
		NewName string `yaml:"newName"`
		NewTag  string `yaml:"newTag"`
	}
}

var podLabels = map[string]string{"app.kubernetes.io/name": "tokend"}

// TestKubernetes holds the manifests together, and to the program.
func TestKubernetes(t *testing.T) {
	var (
		d   deployment
		svc service
		pdb podDisruptionBudget
		np  networkPolicy
		sa  serviceAccount
	)
	for _, m := range []struct {
		file, kind, version string
		into                any
		object              *object
	}{
		{"deployment", "Deployment", "apps/v1", &d, &d.object},
		{"service", "Service", "v1", &svc, &svc.object},
		{"poddisruptionbudget", "PodDisruptionBudget", "policy/v1", &pdb, &pdb.object},
		{"networkpolicy", "NetworkPolicy", "networking.k8s.io/v1", &np, &np.object},
		{"serviceaccount", "ServiceAccount", "v1", &sa, &sa.object},
	} {
		decode(t, "kubernetes/"+m.file+".yaml", m.into)
		if want := (object{m.version, m.kind, metadata{Name: "tokend", Labels: podLabels}}); !reflect.DeepEqual(*m.object, want) {
			t.Errorf("%s: it begins %+v, want %+v", m.file, *m.object, want)
		}
	}
	for what, labels := range map[string]map[string]string{
		"the deployment's selector": d.Spec.Selector.MatchLabels, "the pods": d.Spec.Template.Metadata.Labels,
		"the service": svc.Spec.Selector, "the disruption budget": pdb.Spec.Selector.MatchLabels, "the network policy": np.Spec.PodSelector.MatchLabels,
	} {
		if !reflect.DeepEqual(labels, podLabels) {
			t.Errorf("%s: %v, want %v", what, labels, podLabels)
		}
	}
	pod := d.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		t.Fatalf("%d containers", len(pod.Containers))
	}
	c := pod.Containers[0]

	// The settings, and that what they name is mounted.
	var environ []string
	for _, e := range c.Env {
		if e.Name == "TOKEND_CONFIG" {
			if e.Value != "/etc/tokend/tokend.yaml" {
				t.Errorf("TOKEND_CONFIG is %s", e.Value)
			}
			e.Value = "kubernetes/tokend.yaml"
		}
		environ = append(environ, e.Name+"="+e.Value)
	}
	const secretsDir = "/etc/tokend/secrets"
	cfg := load(t, "kubernetes", secretsDir, environ)
	drains(t, "kubernetes", cfg, pod.TerminationGracePeriodSeconds)
	mounted := map[string]string{}
	for _, m := range c.VolumeMounts {
		if !m.ReadOnly {
			t.Errorf("%s can be written", m.MountPath)
		}
		mounted[m.MountPath] = m.Name
	}
	for _, v := range pod.Volumes {
		switch {
		case v.ConfigMap != nil && mounted["/etc/tokend/tokend.yaml"] == v.Name && v.ConfigMap.Name == "tokend":
		case v.Secret != nil && mounted[secretsDir] == v.Name && v.Secret.SecretName == "tokend" && v.Secret.DefaultMode == 0o440:
		default:
			t.Errorf("the volume %s: %+v", v.Name, v)
		}
	}
	if len(pod.Volumes) != 2 || len(mounted) != 2 {
		t.Errorf("%d volumes, %d mounted", len(pod.Volumes), len(mounted))
	}

	// Ports and probes.
	ports := map[string]string{}
	for _, p := range c.Ports {
		ports[p.Name] = ":" + strconv.Itoa(p.ContainerPort)
	}
	if ports["http"] != cfg.Listen || ports["metrics"] != cfg.AdminListen || ports["http"] != ":"+dockerfile(t, "EXPOSE") {
		t.Errorf("the ports are %v, tokend listens on %s and %s", ports, cfg.Listen, cfg.AdminListen)
	}
	if p := c.LivenessProbe; p.HTTPGet.Path != wire.PathLivez || p.HTTPGet.Port != "http" {
		t.Errorf("liveness: %+v", p)
	}
	if p := c.ReadinessProbe; p.HTTPGet.Path != wire.PathReadyz || p.HTTPGet.Port != "http" || p.TimeoutSeconds < 2 {
		t.Errorf("readiness: %+v", p) // /readyz may take a second, for it bears hiccups
	}
	// A pod that leaves is out of the Service before it stops to serve.
	if p := c.ReadinessProbe; float64(p.PeriodSeconds*p.FailureThreshold) > cfg.Shutdown.Delay.Seconds() {
		t.Errorf("%d times every %d s are more than shutdown.delay, %v", p.FailureThreshold, p.PeriodSeconds, cfg.Shutdown.Delay)
	}
	scrape := d.Spec.Template.Metadata.Annotations
	if scrape["prometheus.io/path"] != wire.PathMetrics || ":"+scrape["prometheus.io/port"] != cfg.AdminListen || scrape["prometheus.io/scrape"] != "true" {
		t.Errorf("annotations: %v", scrape)
	}
	if p := svc.Spec.Ports; len(p) != 1 || p[0].TargetPort != "http" {
		t.Errorf("the service's ports: %+v", p)
	}

	// What it may do.
	no := func(b *bool) bool { return b != nil && !*b }
	s := pod.SecurityContext
	user, _, _ := strings.Cut(dockerfile(t, "USER"), ":")
	if !s.RunAsNonRoot || strconv.Itoa(s.RunAsUser) != user || s.FSGroup != s.RunAsGroup || s.SeccompProfile.Type != "RuntimeDefault" {
		t.Errorf("the pod's security context: %+v, the image's user is %s", s, user)
	}
	if s := c.SecurityContext; !no(s.AllowPrivilegeEscalation) || !s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
		t.Errorf("the container's security context: %+v", s)
	}
	if !no(pod.EnableServiceLinks) || !no(pod.AutomountServiceAccountToken) || !no(sa.AutomountServiceAccountToken) || pod.ServiceAccountName != sa.Metadata.Name {
		t.Error("service links or an account's token get into the pod")
	}
	if r := c.Resources; r.Requests["cpu"] == "" || r.Requests["memory"] == "" || r.Limits["memory"] == "" {
		t.Errorf("resources: %+v", r)
	}
	if c.Image != "tokend" || !slices.Equal(c.Args, []string{"serve"}) {
		t.Errorf("it runs %s %v", c.Image, c.Args)
	}

	// That some are there at any time.
	if r := d.Spec.Strategy.RollingUpdate; d.Spec.Replicas < 2 || r.MaxUnavailable != 0 || r.MaxSurge < 1 || pdb.Spec.MaxUnavailable >= d.Spec.Replicas {
		t.Errorf("%d replicas, %+v, %+v", d.Spec.Replicas, d.Spec.Strategy, pdb.Spec)
	}
	for _, spread := range pod.TopologySpreadConstraints {
		if !reflect.DeepEqual(spread.LabelSelector.MatchLabels, podLabels) || spread.MaxSkew != 1 {
			t.Errorf("spread: %+v", spread)
		}
	}
	if len(pod.TopologySpreadConstraints) != 2 {
		t.Error("pods are not spread over zones and nodes")
	}

	// Who reaches whom.
	if !slices.Equal(np.Spec.PolicyTypes, []string{"Ingress", "Egress"}) {
		t.Errorf("the network policy is for %v", np.Spec.PolicyTypes)
	}
	reached := map[string]bool{}
	for _, in := range np.Spec.Ingress {
		for _, p := range in.Ports {
			reached[p.Port] = len(in.From) > 0
		}
	}
	if want := map[string]bool{"http": true, "metrics": true}; !reflect.DeepEqual(reached, want) {
		t.Errorf("from outside are reached: %v, want each of %v by some", reached, want)
	}
	var out []string
	for _, e := range np.Spec.Egress {
		for _, p := range e.Ports {
			if len(e.To) > 0 {
				out = append(out, p.Port)
			}
		}
	}
	if !slices.Contains(out, "6379") || !slices.Contains(out, "53") {
		t.Errorf("it reaches %v, and needs Redis and names", out)
	}
}

// TestKustomization holds that all manifests are applied, and the settings that they mount.
func TestKustomization(t *testing.T) {
	var k kustomization
	decode(t, "kubernetes/kustomization.yaml", &k)
	paths, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if name != "kustomization.yaml" && name != "tokend.yaml" && !slices.Contains(k.Resources, name) {
			t.Errorf("%s is not applied", name)
		}
	}
	if len(k.Resources) != len(paths)-2 {
		t.Errorf("%v are applied, there are %v", k.Resources, paths)
	}
	if g := k.ConfigMapGenerator; len(g) != 1 || g[0].Name != "tokend" || !slices.Equal(g[0].Files, []string{"tokend.yaml"}) {
		t.Errorf("config maps: %+v", g)
	}
	if i := k.Images; len(i) != 1 || i[0].Name != "tokend" {
		t.Errorf("images: %+v", i)
	}
}
