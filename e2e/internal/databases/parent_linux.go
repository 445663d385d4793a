package databases

import (
	"os/exec"
	"syscall"
)

// endWithParent has cmd end where the tests end without ending it: by a panic, or a timeout.
func endWithParent(cmd *exec.Cmd, end syscall.Signal) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = end
}
