import Testing

@testable import PawlConfiguration

@Suite("Passwords are never shown")
struct SecretTests {
    private static let yaml = "upstream: {webirc_password: hunter2}\naccept: {webirc_password: hunter3}"

    @Test func isReadableOnRequestOnly() throws {
        let configuration = try load(Self.yaml)
        #expect(configuration.upstream.webircPassword?.value == "hunter2")
        #expect(configuration.accept.webircPassword == Secret("hunter3"))
        var dumped = ""
        dump(configuration, to: &dumped)
        for text in [
            "\(configuration)", String(reflecting: configuration), String(describing: configuration.upstream), dumped,
        ] {
            #expect(!text.contains("hunter"))
            #expect(text.contains("(secret)") || !text.contains("secret"))
        }
        #expect(configuration.description.contains("upstream.webirc_password: (secret)"))
    }

    @Test func isMaskedInReports() throws {
        let text = try report(Self.yaml, ["PAWL_UPSTREAM_WEBIRC_PASSWORD": "hunter4"]).description
        #expect(!text.contains("hunter"))
        #expect(
            text.contains(
                "  upstream.webirc_password: (secret)\n    from PAWL_UPSTREAM_WEBIRC_PASSWORD in "
                    + "the environment"))
    }

    @Test func isMaskedInDifferences() throws {
        let differences = try load(Self.yaml).differences(from: load())
        #expect(differences.map(\.name) == ["accept.webirc_password", "upstream.webirc_password"])
        #expect(differences[0].before == "\"\"")
        #expect(differences[0].after == "(secret)")
    }

    @Test func isMaskedInErrors() throws {
        for text in ["hunter 2", ":hunter2", "hunter2\\n", String(repeating: "hunter2", count: 40)] {
            #expect(
                try messages("accept: {webirc_password: \"\(text)\"}") == [
                    "`accept.webirc_password` in FILE line 1 is a text that is not shown; expected a password of "
                        + "at most 200 "
                        + "bytes without spaces that does not begin with `:`, for example `webirc_password: "
                        + "correct-horse`"
                ])
        }
    }

    @Test func syntaxErrorsQuoteNothing() throws {
        let found = try messages("accept: {webirc_password: hunter2\n\tpolicy: [")
        #expect(found.count == 1)
        #expect(!found[0].contains("hunter"))
        for yaml in [
            "accept:\n  webirc_password hunter2", "webirc_password hunter2",
            "accept: {webirc_password: "
                + "{hunter2: x}}",
        ] {
            #expect(try messages(yaml).allSatisfy { !$0.contains("hunter") })
        }
    }

    @Test func comesFromAFile() throws {
        let yaml = "upstream: {webirc_password_file: FOLDER/password}"
        #expect(try load(yaml, with: ["password": "hunter2\n"]).upstream.webircPassword == Secret("hunter2"))
        #expect(
            try messages(yaml) == [
                "`upstream.webirc_password_file` in FILE line 1 is `FOLDER/password`, which cannot be read: there "
                    + "is no such file"
            ])
        for content in ["", "\n", "hunter2\nhunter3\n", "hunter 2"] {
            #expect(
                try messages(yaml, with: ["password": content]) == [
                    "`upstream.webirc_password_file` in FILE line 1 is `FOLDER/password`, whose content is not a "
                        + "password of at most 200 bytes without spaces that does not begin with `:`"
                ])
        }
        #expect(
            try messages(yaml, with: ["password": String(repeating: "x", count: 5000)]) == [
                "`upstream.webirc_password_file` in FILE line 1 is `FOLDER/password`, a file too large for a password"
            ])
    }
}
