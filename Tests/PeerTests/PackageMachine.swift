import Foundation
import Glibc
import PeerKit
import Testing

/// A root of its own with a database of packages, in which the Debian package is installed.
///
/// With the program that was built for the tests: a release build with the runtime inside takes minutes.
struct PackageMachine {
    /// The root of the source tree.
    static let sources = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().path

    /// Whether the tests are run that play more than a minute with a package: dpkg changes owners.
    static var isPlayed: Bool { ProcessInfo.processInfo.environment["PAWL_LONG"] != nil && geteuid() == 0 }

    let scratch: ScratchDirectory
    var root: String { scratch.file("root") }

    init() throws {
        scratch = try ScratchDirectory()
        for path in ["var/lib/dpkg/updates", "var/lib/dpkg/info", "var/log", "etc"] {
            try FileManager.default.createDirectory(atPath: "\(root)/\(path)", withIntermediateDirectories: true)
        }
        for file in ["status", "available"] { _ = try scratch.write("root/var/lib/dpkg/\(file)", "") }
    }

    @discardableResult func dpkg(_ words: String...) throws -> ChildProcess.Output {
        // The maintainer scripts are those of this machine, on the files of that root.
        let output = try ChildProcess.run(
            "/usr/bin/dpkg",
            [
                "--root=\(root)", "--force-not-root", "--force-script-chrootless", "--force-depends",
                "--force-confold", "--force-unsafe-io", "--force-bad-path", "--log=/dev/null",
            ] + words, timeout: .seconds(600))
        #expect(output.succeeded, "\(words): \(output.stdout)\(output.stderr)")
        return output
    }

    func attributes(_ path: String) -> (mode: Int, owner: Int)? {
        guard let found = try? FileManager.default.attributesOfItem(atPath: root + path) else { return nil }
        return (found[.posixPermissions] as? Int ?? 0, found[.ownerAccountID] as? Int ?? 0)
    }

    func text(_ path: String) throws -> String { try String(contentsOfFile: root + path, encoding: .utf8) }

    func has(_ path: String) -> Bool { FileManager.default.fileExists(atPath: root + path) }

    // MARK: Packages

    /// Makes a package and returns its path.
    static func make(_ version: String, in directory: String) throws -> String {
        let made = try ChildProcess.run(
            sources + "/deploy/package",
            ["--binary", PawlProcess.binary(), "--version", version, "--output", directory, "--compression", "none"],
            environment: ["DEBFULLNAME": "Ada Example", "DEBEMAIL": "ada@example.org"], timeout: .seconds(1200))
        #expect(made.succeeded, "\(made.stdout)\(made.stderr)")
        return made.stdout.trimmingCharacters(in: .whitespacesAndNewlines)
    }

    /// Makes the next version of a package, which has one more line in its configuration.
    ///
    /// - Parameter program: what it has in place of the program; nil if it has the same.
    func make(_ version: String, from package: String, program: String? = nil) throws -> String {
        let tree = scratch.file("tree")
        try Self.run("dpkg-deb", "-R", package, tree)
        let control = try String(contentsOfFile: tree + "/DEBIAN/control", encoding: .utf8)
        try Data(control.replacing(/\nVersion: .*/, with: "\nVersion: \(version)").utf8)
            .write(to: URL(fileURLWithPath: tree + "/DEBIAN/control"))
        let delivered = URL(fileURLWithPath: tree + "/etc/pawl/pawl.yaml")
        try (Data(contentsOf: delivered) + Data("# new\n".utf8)).write(to: delivered)
        if let program { try Data(program.utf8).write(to: URL(fileURLWithPath: tree + "/usr/bin/pawl")) }
        let made = scratch.file("\(version).deb")
        try Self.run("dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, made)
        try FileManager.default.removeItem(atPath: tree)
        return made
    }

    private static func run(_ words: String...) throws {
        let output = try ChildProcess.run("/usr/bin/env", words, timeout: .seconds(600))
        #expect(output.succeeded, "\(words): \(output.stderr)")
    }
}
