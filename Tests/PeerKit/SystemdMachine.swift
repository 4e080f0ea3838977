import Foundation
import Glibc
import TestKit

/// A machine of its own with systemd as its first process: namespaces of this one, over its files, of which every change is
/// thrown away.
///
/// It has the network of this machine, so that clients here reach its services. It needs root and `CAP_SYS_ADMIN`.
package final class SystemdMachine {
    private static let systemd = "/lib/systemd/systemd"
    /// Where ``share`` is in the machine.
    package static let shared = "/srv"

    /// Whether namespaces can be made here, and systemd is installed.
    package static var canRun: Bool {
        guard geteuid() == 0, FileManager.default.isExecutableFile(atPath: systemd) else { return false }
        let words = ["--mount", "--pid", "--fork", "--cgroup", "--ipc", "--uts", "true"]
        return (try? ChildProcess.run("/usr/bin/unshare", words))?.succeeded == true
    }

    private let scratch: ScratchDirectory
    private let process: ChildProcess
    /// The first process, as this machine numbers it.
    private let pid: Int32

    /// A directory of this machine that the other one has too, under ``shared``.
    package var share: String { scratch.file("share") }

    /// Starts it; its basic services run when this returns.
    package init(timeout: Duration = Deadline.usual) throws {
        let scratch = try ScratchDirectory()
        self.scratch = scratch
        try scratch.directory("share")
        try scratch.write("inner", Self.inner, mode: 0o755)
        let outer = try scratch.write("outer", Self.outer, mode: 0o755)
        let process = try ChildProcess(
            "/usr/bin/unshare", ["--mount", "--propagation", "private", "/bin/bash", outer, scratch.path])
        self.process = process
        var first: Int32?
        try eventually("the first process", timeout: timeout, every: .milliseconds(50)) {
            guard process.isRunning else { throw PeerError("\(process.stdout)\(process.stderr)") }
            first = process.stdout.firstMatch(of: /first ([0-9]+)\n/).flatMap { Int32($0.1) }
            return first != nil
        }
        guard let first else { throw PeerError("no first process") }
        pid = first
        try eventually("systemd", timeout: timeout, every: .milliseconds(200)) {
            guard process.isRunning else { throw PeerError("\(process.stdout)\(process.stderr)") }
            return try run("systemctl is-active pawl-test.target").succeeded
        }
    }

    package func stop() { process.stop(within: Deadline.usual) }

    /// Runs a line of the shell in the machine.
    package func run(_ line: String, timeout: Duration = Deadline.usual) throws -> ChildProcess.Output {
        try ChildProcess.run(
            "/usr/bin/nsenter",
            ["--target", "\(pid)", "--mount", "--pid", "--ipc", "--uts", "--wd", "/bin/bash", "-c", line],
            environment: [
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_PAGER": "cat",
                "PAWL_DATA": "", "HOME": "/root",
            ], timeout: timeout)
    }

    /// Makes a cgroup, which is the root of the machine's, and the other namespaces. It ends all of them when it is ended.
    private static let outer = #"""
        set -euo pipefail
        dir=$1
        mkdir "$dir/cgroup" "$dir/tmpfs"
        mount -t cgroup2 cgroup2 "$dir/cgroup"
        own=$dir/cgroup/pawl-$(basename "$dir")
        mkdir "$own"
        echo $BASHPID > "$own/cgroup.procs"
        unshare --mount --pid --fork --kill-child --cgroup --ipc --uts /bin/bash "$dir/inner" "$dir" &
        child=$!
        trap 'kill -KILL "$child" 2>/dev/null || true' TERM INT
        while [[ -z $(cat "/proc/$child/task/$child/children" 2>/dev/null) ]]; do
            kill -0 "$child" && sleep 0.05
        done
        echo "first $(tr -d ' ' < "/proc/$child/task/$child/children")"
        while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done
        echo $BASHPID > "$dir/cgroup/cgroup.procs"
        for _ in {1..100}; do
            find "$own" -depth -type d -exec rmdir {} + 2>/dev/null || true
            [[ -d $own ]] || break
            sleep 0.1
        done
        """#

    /// Makes the machine's files and starts systemd. Nothing of `/proc/sys` and `/sys` can be written.
    private static let inner = #"""
        set -euo pipefail
        dir=$1
        mount -t tmpfs tmpfs "$dir/tmpfs"
        mkdir "$dir"/tmpfs/{upper,work,root}
        root=$dir/tmpfs/root
        mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/tmpfs/upper,workdir=$dir/tmpfs/work" "$root"
        mount -t proc proc "$root/proc"
        mount --bind "$root/proc/sys" "$root/proc/sys"
        mount -o remount,bind,ro "$root/proc/sys"
        mount -t sysfs -o ro sysfs "$root/sys"
        mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
        for name in run tmp dev; do mount -t tmpfs tmpfs "$root/$name"; done
        for name in null zero full random urandom tty; do
            touch "$root/dev/$name"
            mount --bind "/dev/$name" "$root/dev/$name"
        done
        mkdir "$root/dev/pts" "$root/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
        ln -s pts/ptmx "$root/dev/ptmx"
        mount -t tmpfs tmpfs "$root/dev/shm"
        mount --bind "$dir/share" "$root/srv"
        printf '[Unit]\nRequires=basic.target\nAfter=basic.target\n' > "$root/etc/systemd/system/pawl-test.target"
        # Nothing else of this machine is started in the other one.
        for path in "$root"/etc/systemd/system/*.wants; do rm -rf "$path"; done
        : > "$root/etc/machine-id"
        rm -f "$root/usr/sbin/policy-rc.d" "$root/var/lib/man-db/auto-update"
        cd "$root"
        mkdir -p mnt/before
        pivot_root . mnt/before
        umount -l /mnt/before
        exec env -i container=pawl PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            /lib/systemd/systemd --unit=pawl-test.target --log-target=console --log-level=info --show-status=no
        """#
}
