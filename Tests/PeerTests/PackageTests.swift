import Foundation
import Glibc
import PeerKit
import TestThreads
import Testing

/// The Debian package, installed, upgraded, removed and purged under a root of its own. With the program that was built for the
/// tests: a release build with the runtime inside takes minutes.
@Suite(.blocking, .serialized) struct PackageTests {
    @Test(.enabled(if: geteuid() == 0, "dpkg changes owners")) func theLifeOfAPackage() throws {
        let machine = try PackageMachine()
        let first = try PackageMachine.make("0.1.0", in: machine.scratch.file("made"))
        #expect(first.hasSuffix(".deb"))
        let installed = try machine.dpkg("-i", first)
        #expect(installed.stdout.contains("systemctl enable --now pawl"))
        try checkFiles(machine)
        try play(machine)

        // The data and the configuration are the operator's.
        for path in ["/var/lib/pawl/storage.key", "/var/backups/pawl/one"] {
            #expect(FileManager.default.createFile(atPath: machine.root + path, contents: Data("key".utf8)))
        }
        let own = "policy: hosted\n"
        try Data(own.utf8).write(to: URL(fileURLWithPath: machine.root + "/etc/pawl/pawl.yaml"))
        // Its program is not run, and takes no room.
        let second = try machine.make("0.2.0", from: first, program: "0.2.0\n")
        try machine.dpkg("-i", second)
        #expect(try machine.text("/etc/pawl/pawl.yaml") == own)
        #expect(machine.attributes("/etc/pawl")?.mode == 0o750)
        #expect(try machine.dpkg("-s", "pawl").stdout.contains("Version: 0.2.0"))

        try machine.dpkg("-r", "pawl")
        #expect(!machine.has("/usr/bin/pawl") && machine.has("/etc/pawl/pawl.yaml"))
        #expect(machine.has("/var/lib/pawl/storage.key"))
        let purged = try machine.dpkg("-P", "pawl")
        #expect(purged.stderr.contains("/var/lib/pawl is kept"))
        #expect(!machine.has("/etc/pawl"))
        #expect(machine.has("/var/lib/pawl/storage.key") && machine.has("/var/backups/pawl/one"))
    }

    /// Nothing is made for a name or an address that Debian's tools refuse.
    @Test(arguments: ["ada@example.org", "Ada <ada@localhost>", "<ada@example.org>", "Ada, Bob <ada@example.org>"])
    func somebodyAnswersForThePackage(_ maintainer: String) throws {
        let refused = try ChildProcess.run(
            PackageMachine.sources + "/deploy/package", ["--binary", "/none", "--maintainer", maintainer])
        #expect(refused.status == .exited(64) && refused.stderr.contains("DEBEMAIL"), "\(refused.stderr)")
    }

    private func checkFiles(_ machine: PackageMachine) throws {
        let user = try #require(
            try machine.text("/etc/passwd").split(separator: "\n").first { $0.hasPrefix("pawl:") })
        let number = try #require(Int(user.split(separator: ":")[2]))
        for (path, mode) in [("/var/lib/pawl", 0o700), ("/var/backups/pawl", 0o700)] {
            let found = machine.attributes(path)
            #expect(found?.mode == mode && found?.owner == number, "\(path): \(String(describing: found))")
        }
        for (path, mode) in [
            ("/usr/bin/pawl", 0o755), ("/etc/pawl", 0o750), ("/etc/pawl/pawl.yaml", 0o640),
            ("/etc/pawl/mappings/matrix.yaml", 0o644), ("/lib/systemd/system/pawl.service", 0o644),
            ("/usr/lib/systemd/user/pawl-sidecar.service", 0o644), ("/usr/share/man/man1/pawl.1.gz", 0o644),
            ("/usr/share/bash-completion/completions/pawl", 0o644), ("/usr/share/zsh/vendor-completions/_pawl", 0o644),
            ("/usr/share/doc/pawl/copyright", 0o644), ("/usr/share/doc/pawl/examples/matrix.yaml", 0o644),
            ("/usr/share/lintian/overrides/pawl", 0o644),
        ] {
            let found = machine.attributes(path)
            #expect(found?.mode == mode && found?.owner == 0, "\(path): \(String(describing: found))")
        }
        // The key file of the configuration is a conffile: dpkg keeps what the operator has changed.
        let conffiles = try machine.text("/var/lib/dpkg/info/pawl.conffiles")
        #expect(conffiles.contains("/etc/pawl/pawl.yaml\n") && conffiles.contains("/etc/pawl/mappings/matrix.yaml\n"))
        for path in ["/lib/systemd/system/pawl.service", "/usr/lib/systemd/user/pawl-sidecar.service"] {
            let unit = try machine.text(path)
            #expect(unit.contains("\nExecStart=/usr/bin/pawl ") && unit.contains("\nType=notify\n"))
        }
        // The program has no symbols of the debugger and works; the default configuration is a good one.
        let program = machine.root + "/usr/bin/pawl"
        #expect(try ChildProcess.run(program, ["--version"]).stdout.hasPrefix("pawl "))
        #expect(try ChildProcess.run(program, ["config", "check", machine.root + "/etc/pawl/pawl.yaml"]).succeeded)
        let page = try ChildProcess.run(
            "/usr/bin/env", ["sh", "-c", "gzip -dc '\(machine.root)/usr/share/man/man1/pawl.1.gz'"])
        #expect(page.stdout.contains(".TH PAWL 1"))
        let size = try FileManager.default.attributesOfItem(atPath: program)[.size] as? Int ?? 0
        let built = try FileManager.default.attributesOfItem(atPath: PawlProcess.binary())[.size] as? Int ?? 0
        #expect(size < built)
        // Foundation's networking would need libcurl.
        let needed = try ChildProcess.run("/usr/bin/env", ["objdump", "-p", program])
        #expect(needed.stdout.contains("NEEDED") && !needed.stdout.contains("FoundationNetworking"))
        let state = try machine.dpkg("-s", "pawl").stdout
        #expect(state.contains("\nMaintainer: Ada Example <ada@example.org>\n"), "\(state)")
        #expect(!state.contains("libcurl"))
        let sums = try ChildProcess.run(
            "/usr/bin/env", ["sh", "-c", "cd '\(machine.root)' && md5sum --quiet -c var/lib/dpkg/info/pawl.md5sums"])
        #expect(sums.succeeded, "\(sums.stdout)")
    }

    /// The play of the package, with the program of the package.
    private func play(_ machine: PackageMachine) throws {
        let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
        let played = try ChildProcess.run(
            machine.root + "/usr/share/pawl/deploy/quickstart", ["--once"],
            environment: ["PATH": "\(machine.root)/usr/bin:\(path)", "PAWL_BIN": "", "NO_COLOR": "1"],
            timeout: .seconds(1800))
        #expect(played.succeeded, "\(played.stdout.suffix(3000))\(played.stderr)")
        #expect(played.stdout.contains("\(machine.root)/usr/bin/pawl is installed"))
        let other = try ChildProcess.run(
            machine.root + "/usr/share/pawl/deploy/quickstart", ["--chat", "matrix", "--once"])
        #expect(other.status == .exited(1) && other.stderr.contains("sources"))
    }

    /// Debian's own checks. They need 100 MB of packages.
    @Test(.enabled(if: ProcessInfo.processInfo.environment["PAWL_LONG"] != nil)) func lintianHasNoErrors() throws {
        let scratch = try ScratchDirectory()
        let package = try PackageMachine.make("0.1.0", in: scratch.path)
        let checked = try ChildProcess.run(
            "/usr/bin/env",
            ["lintian", "--allow-root", "--fail-on", "error", "--suppress-tags", Self.notOurs, package],
            timeout: .seconds(1200))
        #expect(checked.succeeded, "\(checked.stdout)\(checked.stderr)")
    }

    /// Of this package, which is neither compressed nor linked for release.
    private static let notOurs =
        "custom-library-search-path,uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball"
}
