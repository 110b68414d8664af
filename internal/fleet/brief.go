package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// acceptMetadata asks for the metadata of what was written, and not for all of it: that
// would come back whole from each call, and comes by the watch anyway. Protobuf is half as
// long as JSON.
const acceptMetadata = "application/vnd.kubernetes.protobuf" + asMetadata + ",application/json" + asMetadata + ",application/json"

const asMetadata = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// protobufMark begins what an API server writes in protobuf.
var protobufMark = []byte("k8s\x00")

// brief makes, changes and removes objects of Pelago's own kinds with short answers.
type brief struct {
	rest   rest.Interface
	params runtime.ParameterCodec
}

func newBrief(base *rest.Config, hc *http.Client, scheme *runtime.Scheme) (*brief, error) {
	config := rest.CopyConfig(base)
	config.APIPath, config.GroupVersion = "/apis", &v1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c, err := rest.RESTClientForConfigAndClient(config, hc)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &brief{c, runtime.NewParameterCodec(scheme)}, nil
}

// resource is what the kind of an object is called in paths; empty if it is not of ours.
func (b *brief) resource(c client.Client, obj client.Object) string {
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil || gvk.GroupVersion() != v1alpha1.GroupVersion {
		return ""
	}
	mapping, err := c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return ""
	}
	return mapping.Resource.Resource
}

func (b *brief) create(ctx context.Context, resource string, obj client.Object, opts []client.CreateOption) error {
	options := client.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	options.ApplyOptions(opts)
	result := b.rest.Post().Namespace(obj.GetNamespace()).Resource(resource).SetHeader("Accept", acceptMetadata).
		VersionedParams(options.AsCreateOptions(), b.params).Body(obj).Do(ctx)
	if err := result.Error(); err != nil { // of Raw it would not say what the API server says
		return err
	}
	answer, err := result.Raw()
	if err != nil {
		return err
	}
	made, err := readMetadata(answer)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	now, ok := obj.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
	if !ok {
		return fmt.Errorf("%T has no metadata", obj)
	}
	*now = made.ObjectMeta
	return nil
}

// readMetadata reads the metadata of an object, in protobuf or JSON.
func readMetadata(answer []byte) (made metav1.PartialObjectMetadata, err error) {
	wrapped, is := bytes.CutPrefix(answer, protobufMark)
	if !is {
		return made, json.Unmarshal(answer, &made)
	}
	var inner runtime.Unknown
	if err := inner.Unmarshal(wrapped); err != nil {
		return made, err
	}
	return made, made.Unmarshal(inner.Raw)
}

// patch reads nothing of the answer, which may cost more than a call may if it is the whole object: JSON, as
// who wrote what of many entries would cost more in protobuf.
func (b *brief) patch(ctx context.Context, resource string, obj client.Object, patch client.Patch, opts []client.PatchOption) error {
	data, err := patch.Data(obj)
	if err != nil {
		return fmt.Errorf("making a patch: %w", err)
	}
	options := client.PatchOptions{FieldValidation: metav1.FieldValidationStrict}
	options.ApplyOptions(opts)
	return b.rest.Patch(patch.Type()).Namespace(obj.GetNamespace()).Resource(resource).Name(obj.GetName()).
		SetHeader("Accept", "application/json"+asMetadata+",application/json").
		VersionedParams(options.AsPatchOptions(), b.params).Body(data).Do(ctx).Error()
}

func (b *brief) delete(ctx context.Context, resource string, obj client.Object, opts []client.DeleteOption) error {
	call := b.rest.Delete().Namespace(obj.GetNamespace()).Resource(resource).Name(obj.GetName()).SetHeader("Accept", acceptMetadata)
	if len(opts) > 0 { // else there is nothing to say
		var options client.DeleteOptions
		options.ApplyOptions(opts)
		call = call.Body(options.AsDeleteOptions())
	}
	return call.Do(ctx).Error()
}
