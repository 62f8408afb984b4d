// kube-router's firewall, for all nodes of one machine: it enforces NetworkPolicies.
//
// kube-router's own program guards the pods of one node, and removes every other pod's chains as stale. The local nodes
// share the machine's iptables, so two of it would remove each other's. This one guards the pods of all of them.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const (
	// How often the rules are written anew although nothing has changed: others write iptables, too.
	syncPeriod = 30 * time.Second
	// What a sync may take at most, on a busy machine, before the next begins.
	grace = 30 * time.Second
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	node := flag.String("hostname-override", "", "a node of this machine")
	services := flag.String("service-cluster-ip-range", "", "the addresses of Services")
	health := flag.String("healthz-bind-address", "127.0.0.1:20244", "where /healthz is")
	flag.Parse()
	klog.Fatal(run(*kubeconfig, *node, *services, *health))
}

// run enforces policies until something fails.
func run(kubeconfig, node, services, health string) error {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()

	config := options.NewKubeRouterConfig()
	config.HostnameOverride = node
	config.ClusterIPCIDRs = []string{services}
	config.IPTablesSyncPeriod = syncPeriod
	config.EnableIPv4 = true
	iptables, ipsets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	firewall, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, namespaces, &sync.Mutex{}, iptables, ipsets)
	if err != nil {
		return err
	}
	move, err := onto(client, node)
	if err != nil {
		return err
	}
	if err := pods.SetTransform(move); err != nil {
		return err
	}

	forever := make(chan struct{})
	factory.Start(forever)
	factory.WaitForCacheSync(forever)
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods:       firewall.PodEventHandler,
		namespaces: firewall.NamespaceEventHandler,
		policies:   firewall.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	beats := make(chan *healthcheck.ControllerHeartbeat)
	var running sync.WaitGroup
	running.Add(1)
	go firewall.Run(beats, forever, &running)
	return serveHealth(health, beats)
}

// onto makes the pods of all nodes that have an address of this machine look like `node`'s.
func onto(client kubernetes.Interface, node string) (cache.TransformFunc, error) {
	found, err := client.CoreV1().Nodes().Get(context.Background(), node, meta.GetOptions{})
	if err != nil {
		return nil, err
	}
	var address string
	for _, each := range found.Status.Addresses {
		if each.Type == core.NodeInternalIP {
			address = each.Address
			break
		}
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	here := map[string]bool{}
	for _, each := range interfaces {
		if network, ok := each.(*net.IPNet); ok {
			here[network.IP.String()] = true
		}
	}
	if !here[address] {
		return nil, fmt.Errorf("the node %s has the address %q, which is none of this machine's", node, address)
	}
	return func(object any) (any, error) {
		if pod, ok := object.(*core.Pod); ok && here[pod.Status.HostIP] {
			pod.Status.HostIP = address
		}
		return object, nil
	}, nil
}

// serveHealth says at /healthz whether a sync of the rules has begun lately.
func serveHealth(address string, beats <-chan *healthcheck.ControllerHeartbeat) error {
	var last atomic.Int64
	go func() {
		for beat := range beats {
			last.Store(beat.LastHeartBeat.UnixNano())
		}
	}()
	http.HandleFunc("/healthz", func(response http.ResponseWriter, _ *http.Request) {
		if silent := time.Since(time.Unix(0, last.Load())); silent > syncPeriod+grace {
			http.Error(response, fmt.Sprintf("no sync has begun for %s", silent), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(response, "ok")
	})
	return http.ListenAndServe(address, nil)
}
