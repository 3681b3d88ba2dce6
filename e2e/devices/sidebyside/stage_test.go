package sidebyside

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

const (
	// patience is far above what anything here takes.
	patience = 2 * time.Minute
	// interval is how often it is looked whether something has come about.
	interval = 250 * time.Millisecond
)

// stage is what a scenario is played on. After the first error nothing more is
// done, and the error is kept.
type stage struct {
	ctx       context.Context //nolint:containedctx // A stage lives as long as one scenario is played.
	client    kubernetes.Interface
	namespace string
	driver    string
	// began is when the taint came that the scenario is about.
	began time.Time
	pods  []string
	rules []string
	err   error
}

// newStage creates a namespace, and the class of a driver, for a scenario.
func newStage(ctx context.Context, client kubernetes.Interface, number int) *stage {
	name := fmt.Sprintf("s%02d", number)
	s := &stage{ctx: ctx, client: client, namespace: name, driver: name + ".e2e.example.com"}
	s.do("create namespace", func() error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{resourcev1.DRAAdminNamespaceLabelKey: "true"},
		}}
		_, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		return err
	})
	s.eventually("service account", func() error {
		_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	s.class(dra.Class(s.driver))
	return s
}

func (s *stage) do(what string, act func() error) {
	if s.err != nil {
		return
	}
	if err := act(); err != nil {
		s.err = fmt.Errorf("%s: %w", what, err)
	}
}

func (s *stage) eventually(what string, check func() error) {
	s.do("wait for "+what, func() error {
		last := errors.New("never looked")
		err := wait.PollUntilContextTimeout(s.ctx, interval, patience, true, func(context.Context) (bool, error) {
			last = check()
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("%w: %w", err, last)
		}
		return nil
	})
}

// begin notes that the taint comes now.
func (s *stage) begin() { s.began = time.Now() }

// in is a time after the beginning, for a taint; negative is before. Stored times
// are in whole seconds, and this one is the next, so that nothing is due early.
func (s *stage) in(d time.Duration) *metav1.Time {
	return new(metav1.NewTime(s.began.Add(d + time.Second).Truncate(time.Second)))
}

// after waits until some time after the beginning.
func (s *stage) after(d time.Duration) {
	s.do("wait", func() error {
		timer := time.NewTimer(time.Until(s.began.Add(d)))
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	})
}

func (s *stage) class(class *resourcev1.DeviceClass) {
	s.do("create class", func() error {
		_, err := s.client.ResourceV1().DeviceClasses().Create(s.ctx, class, metav1.CreateOptions{})
		return err
	})
}

// slice publishes a slice.
func (s *stage) slice(slice *resourcev1.ResourceSlice) {
	s.do("create slice", func() error {
		_, err := s.client.ResourceV1().ResourceSlices().Create(s.ctx, slice, metav1.CreateOptions{})
		return err
	})
}

// devices publishes a pool that has these devices, without taints.
func (s *stage) devices(pool string, names ...string) {
	var devices []resourcev1.Device
	for _, name := range names {
		devices = append(devices, dra.Device(name))
	}
	s.slice(dra.Slice(s.driver, pool, devices...))
}

// editSlice changes the slice of a pool.
func (s *stage) editSlice(pool string, edit func(*resourcev1.ResourceSlice)) {
	client := s.client.ResourceV1().ResourceSlices()
	s.do("edit slice", func() error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			slice, err := client.Get(s.ctx, s.driver+"-"+pool, metav1.GetOptions{})
			if err != nil {
				return err
			}
			edit(slice)
			_, err = client.Update(s.ctx, slice, metav1.UpdateOptions{})
			return err
		})
	})
}

// taint gives the first device of a pool's slice taints, and no others.
func (s *stage) taint(pool string, taints ...resourcev1.DeviceTaint) {
	s.editSlice(pool, func(slice *resourcev1.ResourceSlice) { slice.Spec.Devices[0].Taints = taints })
}

func (s *stage) deleteSlice(name string) {
	s.do("delete slice", func() error {
		return s.client.ResourceV1().ResourceSlices().Delete(s.ctx, name, metav1.DeleteOptions{})
	})
}
