package addon

// References of the images. Nothing serves the name pelago.local: an image is
// on a node because it was put there.
const (
	PauseRef      = "pelago.local/pause:1"
	BusyboxRef    = "pelago.local/busybox:1"
	CoreDNSRef    = "pelago.local/coredns:1.14.7"
	MetricsRef    = "pelago.local/metrics-server:0.9.0"
	StorageRef    = "pelago.local/local-path-provisioner:0.0.30"
	ControllerRef = "pelago.local/metallb-controller:0.15.2"
	SpeakerRef    = "pelago.local/metallb-speaker:0.15.2"
	FlannelRef    = "pelago.local/flannel:0.28.4"
)

// Module files of the programs, in the folder above this one.
const (
	addonsModules  = "addons.mod"
	metallbModules = "metallb.mod"
)

// Program is something to compile with
// go build -modfile=MODULES -o NAME SOURCE, with CGO_ENABLED=0.
type Program struct {
	Name string
	// Source is a file of the sandbox module or an import path.
	Source string
	// Version is the release it is built from.
	Version string
	// Modules is the module file that fixes its dependencies.
	Modules string
}

// Programs are all programs that images are made of.
var Programs = []Program{
	{"pause", "addons/pause/main.go", "1", addonsModules},
	{"coredns", "addons/coredns/main.go", "1.14.7", addonsModules},
	{"flannel", "addons/flannel/main.go", "0.28.4", addonsModules},
	{"metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server", "0.9.0", addonsModules},
	{"local-path-provisioner", "github.com/rancher/local-path-provisioner", "0.0.30", addonsModules},
	{"metallb-controller", "go.universe.tf/metallb/controller", "0.15.2", metallbModules},
	{"metallb-speaker", "go.universe.tf/metallb/speaker", "0.15.2", metallbModules},
}

// Image is an image to build: programs, each at /NAME, and the files of Debian
// packages.
type Image struct {
	Ref      string
	Programs []string
	Packages []string
	// Entrypoint is empty for an image whose users say what to run.
	Entrypoint []string
}

// Images are all images that add-ons and nodes use. Flannel runs nft; the
// helper pods of the local-path provisioner run a shell from busybox, which is
// the dynamic one because the static one cannot look names up.
var Images = []Image{
	{Ref: PauseRef, Programs: []string{"pause"}, Entrypoint: []string{"/pause"}},
	{Ref: BusyboxRef, Packages: []string{"busybox"}},
	{Ref: CoreDNSRef, Programs: []string{"coredns"}, Entrypoint: []string{"/coredns"}},
	{Ref: MetricsRef, Programs: []string{"metrics-server"}, Entrypoint: []string{"/metrics-server"}},
	{Ref: StorageRef, Programs: []string{"local-path-provisioner"}, Entrypoint: []string{"/local-path-provisioner"}},
	{Ref: ControllerRef, Programs: []string{"metallb-controller"}, Entrypoint: []string{"/metallb-controller"}},
	{Ref: SpeakerRef, Programs: []string{"metallb-speaker"}, Entrypoint: []string{"/metallb-speaker"}},
	{Ref: FlannelRef, Programs: []string{"flannel"}, Packages: []string{"nftables"}, Entrypoint: []string{"/flannel"}},
}
