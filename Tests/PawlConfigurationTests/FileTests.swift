import Foundation
import Testing

@testable import PawlConfiguration

@Suite("Files that are no configuration")
struct FileTests {
    private func problems(at path: String) -> [ConfigurationError.Problem] {
        do throws(ConfigurationError) {
            _ = try PawlConfiguration.load(file: path, protocols: protocols)
            return []
        } catch {
            return error.problems
        }
    }

    @Test func missing() {
        #expect(
            self.problems(at: "/nowhere/pawl.yaml") == [
                .init(
                    code: .unreadable,
                    message: "the configuration /nowhere/pawl.yaml cannot be read: there is no such file")
            ])
    }

    @Test func directory() {
        #expect(
            self.problems(at: "/tmp") == [
                .init(code: .unreadable, message: "the configuration /tmp cannot be read: it is a directory")
            ])
    }

    @Test(.enabled(if: getuid() != 0, "root may read everything"))
    func forbidden() throws {
        let folder = try Folder()
        let path = try folder.write("pawl.yaml", "policy: off")
        chmod(path, 0)
        #expect(
            self.problems(at: path).map(\.message) == [
                "the configuration \(path) cannot be read: this user "
                    + "may not read it"
            ])
    }

    @Test func huge() throws {
        let comment = "#" + String(repeating: "x", count: (1 << 20) - 2) + "\n"
        #expect(try load(comment) == load())
        #expect(
            try FileTests.refusal(comment + "\n") == [
                .init(
                    code: .tooLarge,
                    message: "FILE is larger than 1 MiB, the limit of a configuration; is it "
                        + "the right file?")
            ])
    }

    @Test func endless() {
        #expect(self.problems(at: "/dev/zero").map(\.code) == [.tooLarge])
    }

    @Test func notText() throws {
        let folder = try Folder()
        let path = folder.path + "/pawl.yaml"
        try Data([0x70, 0xFF, 0xFE]).write(to: URL(filePath: path))
        #expect(self.problems(at: path).map(\.message) == ["\(path) is not UTF-8 text; is it the right file?"])
    }

    @Test(arguments: [
        (
            "policy: off\n\tdata: x",
            "FILE line 2 column 1 is not YAML: while scanning a plain scalar of line 1, "
                + "found a tab character that violates indentation"
        ),
        (
            "policy: [off",
            "FILE line 2 column 1 is not YAML: while parsing a flow sequence of line 1, did not find "
                + "expected ',' or ']'"
        ),
        ("a: b: c", "FILE line 1 column 5 is not YAML: mapping values are not allowed in this context"),
        ("policy: *nothing", "FILE line 1 column 9 is not YAML: found undefined alias"),
        ("services: &a [*a]", "FILE line 1 column 15 is not YAML: found undefined alias"),
        (
            "policy: off\n---\npolicy: off",
            "FILE line 2 column 1 is not YAML: expected a single document in the "
                + "stream, but found another document"
        ),
        ("policy: off\ndata: \u{1}", "FILE line 2 is not YAML: control characters are not allowed"),
    ])
    func syntax(_ yaml: String, _ message: String) throws {
        #expect(try FileTests.refusal(yaml) == [.init(code: .syntax, message: message)])
    }

    @Test func duplicates() throws {
        #expect(
            try FileTests.refusal("data: /x\npolicy: off\npolicy: observe") == [
                .init(
                    code: .duplicateKey,
                    message: "`policy` is written more than once in FILE, for the first time in line 2; keep one")
            ])
        #expect(
            try FileTests.refusal(
                "upstream:\n  url: irc://localhost\n  'url': "
                    + "irc://localhost"
            ).map(\.code) == [.duplicateKey])
        #expect(
            try FileTests.refusal("policy: off\n!!binary policy: on") == [
                .init(code: .duplicateKey, message: "`policy` is written twice in FILE, for the second time in line 2")
            ])
    }

    /// Each level doubles the one below it; sixty-four of them would be more than any machine holds, so that an explosion cannot
    /// go unnoticed. No time limit: that counts the wait for a thread as well, minutes while servers are being tested.
    @Test(arguments: ["x: *a63", "services: *a63", "upstream: {tls: *a63}", "policy: *a63"])
    func aliasesDoNotExplode(_ use: String) throws {
        for shape in ["[*a, *a]", "{x: *a, y: *a}"] {
            var yaml = "a0: &a0 1\n"
            for level in 1..<64 {
                yaml += "a\(level): &a\(level) \(shape.replacing("*a", with: "*a\(level - 1)"))\n"
            }
            #expect(try FileTests.refusal(yaml + use).allSatisfy { $0.code == .unknownKey || $0.code == .wrongType })
        }
    }

    @Test func deepNesting() throws {
        for yaml in [String(repeating: "[", count: 500_000), String(repeating: "- ", count: 500_000)] {
            #expect(try FileTests.refusal(yaml).map(\.code) == [.syntax])
        }
    }

    @Test func endlessKey() throws {
        let key = String(repeating: "p", count: 100_000)
        #expect(
            try FileTests.refusal("? \(key)\n: 1").map(\.message) == [
                "unknown key `\(key.prefix(100))…` in FILE line 1; no key has a name like it, see "
                    + "config/pawl.yaml for all of them"
            ])
    }

    private static func refusal(_ yaml: String) throws -> [ConfigurationError.Problem] {
        try PawlConfigurationTests.problems(yaml)
    }
}
