package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// maxBody is the most that the API server itself accepts.
	maxBody = 3 << 20
	// maxInFlight bounds the bodies of all requests together.
	maxInFlight = 48 << 20
	// waitLimit is how long a request waits for room.
	waitLimit = 3 * time.Second
)

var pods = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}

// webhook answers the API server. Who asks is not known, and need not be: the answer
// says no more than a pod of the namespace would show.
type webhook struct {
	facts   *gatherer
	room    *semaphore.Weighted
	counted *prometheus.CounterVec
	took    prometheus.Histogram
}

func newWebhook(g *gatherer, counted *prometheus.CounterVec, took prometheus.Histogram) *webhook {
	return &webhook{facts: g, room: semaphore.NewWeighted(maxInFlight), counted: counted, took: took}
}

// ServeHTTP answers one AdmissionReview.
func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerLimit)
	defer cancel()
	weight := int64(maxBody)
	if r.ContentLength >= 0 {
		weight = min(r.ContentLength+1, maxBody)
	}
	waiting, done := context.WithTimeout(ctx, waitLimit)
	err := h.room.Acquire(waiting, weight)
	done()
	if err != nil {
		http.Error(w, "too many requests at once; try again", http.StatusServiceUnavailable)
		return
	}
	defer h.room.Release(weight)
	review, problem := readReview(w, r)
	if problem != nil {
		h.counted.WithLabelValues(string(outcomeMalformed)).Inc()
		http.Error(w, problem.message, problem.code)
		return
	}
	answer := h.answer
	if r.URL.Path == KeepHomePath {
		answer = h.keep
	}
	begun := h.facts.clock.Now()
	response, what := answer(ctx, review.Request)
	h.took.Observe(h.facts.clock.Since(begun).Seconds())
	h.counted.WithLabelValues(string(what)).Inc()
	response.UID = review.Request.UID
	out := admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(out); err != nil {
		log.FromContext(ctx).V(1).Info("answer not sent", "cause", err.Error())
	}
}

// problem is why a request is not answered.
type problem struct {
	code    int
	message string
}

func bad(format string, args ...any) *problem {
	return &problem{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// readReview reads a request and checks its form.
func readReview(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionReview, *problem) {
	if r.Method != http.MethodPost {
		return nil, &problem{http.StatusMethodNotAllowed, "use POST with an AdmissionReview"}
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, &problem{http.StatusUnsupportedMediaType, "Content-Type: must be application/json"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &problem{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", tooLarge.Limit)}
	}
	if err != nil {
		return nil, bad("the body ends too early")
	}
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, bad("the body is no AdmissionReview in JSON")
	}
	if review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Kind != "AdmissionReview" {
		return nil, bad("apiVersion and kind: must be %s and AdmissionReview", admissionv1.SchemeGroupVersion)
	}
	if review.Request == nil || review.Request.UID == "" {
		return nil, bad("request: missing, or without a uid")
	}
	return review, nil
}

// makesPod says whether a request is about a pod that is being made.
func makesPod(request *admissionv1.AdmissionRequest) bool {
	return request.Resource == pods && request.SubResource == "" && request.Operation == admissionv1.Create && request.Namespace != ""
}

// answer decides on a pod of an offloaded namespace.
func (h *webhook) answer(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, outcome) {
	if !makesPod(request) {
		return &admissionv1.AdmissionResponse{Allowed: true}, outcomeIgnored
	}
	pod, has, err := look(request.Object.Raw)
	if err != nil {
		return refuse(metav1.StatusReasonBadRequest, http.StatusBadRequest, "pelago: "+err.Error()), outcomeRefused
	}
	f, err := h.facts.gather(ctx, request.Namespace, pod)
	if err != nil {
		log.FromContext(ctx).Error(err, "pod not judged", "namespace", request.Namespace)
		return refuse(metav1.StatusReasonServiceUnavailable, http.StatusServiceUnavailable,
			"pelago cannot say where pods of this offloaded namespace may run: "+err.Error()+"; try again"), outcomeFailed
	}
	t, err := mutate(f)
	if err != nil {
		return refuse(metav1.StatusReasonInvalid, http.StatusUnprocessableEntity, "pelago: "+err.Error()), outcomeRefused
	}
	response, err := allow(t, has)
	if err != nil {
		return refuse(metav1.StatusReasonInternalError, http.StatusInternalServerError, "pelago: "+err.Error()), outcomeFailed
	}
	return response, t.outcome
}

// allow lets a pod be made, with its terms.
func allow(t terms, has parents) (*admissionv1.AdmissionResponse, error) {
	response := &admissionv1.AdmissionResponse{Allowed: true}
	operations := t.patch(has)
	if len(operations) == 0 {
		return response, nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("writing the patch: %w", err)
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.Patch, response.PatchType = patch, &kind
	return response, nil
}

func refuse(reason metav1.StatusReason, code int32, message string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{Status: metav1.StatusFailure, Reason: reason, Code: code, Message: message}}
}
