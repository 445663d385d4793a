package history_test

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// clockMovable tells that a process's own clock can be moved on this platform.
const clockMovable = true

// moveClock moves the wall clock of the process pid, and of no other, by d: whatever it reads
// from now on is that much off, while its monotonic clock, like everybody's, runs on. The
// kernel's own clock_gettime, which each process has mapped as the vDSO and which Go calls, is
// overwritten in that process with one that asks the kernel and adds d.
//
// Libraries that are preloaded for this do not reach a Go program, which does not call libc.
func moveClock(pid int, d time.Duration) error {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return err
	}
	var low, high int64
	for sc := bufio.NewScanner(bytes.NewReader(maps)); sc.Scan(); {
		if strings.HasSuffix(sc.Text(), "[vdso]") {
			fmt.Sscanf(sc.Text(), "%x-%x", &low, &high)
		}
	}
	if low == 0 {
		return errors.New("the process has no vDSO")
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	image := make([]byte, high-low)
	if _, err := mem.ReadAt(image, low); err != nil {
		return err
	}
	vdso, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return err
	}
	symbols, err := vdso.DynamicSymbols()
	if err != nil {
		return err
	}
	for _, s := range symbols {
		if s.Name != "__vdso_clock_gettime" {
			continue
		}
		code := []byte{
			0xb8, 228, 0, 0, 0, // mov  eax, SYS_clock_gettime
			0x0f, 0x05, //         syscall
			0x85, 0xc0, //         test eax, eax
			0x75, 0x0e, //         jne  the end
			0x85, 0xff, //         test edi, edi: CLOCK_REALTIME?
			0x75, 0x0a, //         jne  the end
			0x48, 0x8b, 0x0d, 4, 0, 0, 0, // mov rcx, [seconds]
			0x48, 0x01, 0x0e, //   add  [rsi], rcx
			0xc3, //               the end: ret
		}
		code = binary.LittleEndian.AppendUint64(code, uint64(d/time.Second))
		if uint64(len(code)) > s.Size {
			return errors.New("the vDSO's clock_gettime is too short to be replaced")
		}
		// None of its threads may be on the way while the code changes.
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		defer syscall.Kill(pid, syscall.SIGCONT)
		_, err := mem.WriteAt(code, low+int64(s.Value))
		return err
	}
	return errors.New("the vDSO has no clock_gettime")
}
