import Foundation
import Protection
import Testing
import Yams

@testable import PawlConfiguration

@Suite("The table, and the files that follow from it")
struct DocumentTests {
    /// `WRITE_PAWL_CONFIGURATION=1 swift test` writes the file anew after the table has changed.
    @Test func deliveredFileIsTheDocument() throws {
        let path = "\(deliveredFolder)/pawl.yaml"
        if ProcessInfo.processInfo.environment["WRITE_PAWL_CONFIGURATION"] != nil {
            try Data(ConfigurationKey.document().utf8).write(to: URL(filePath: path))
        }
        #expect(try String(contentsOfFile: path, encoding: .utf8) == ConfigurationKey.document())
    }

    /// Reads the delivered file without the code under test.
    @Test func deliveredFileNamesEveryKeyWithItsDefault() throws {
        var found: [String: ConfigurationKey.Value] = [:]
        func walk(_ node: Node, _ prefix: String) {
            for (key, value) in node.mapping ?? [:] {
                let name = prefix + (key.string ?? "?")
                switch value {
                case .mapping: walk(value, name + ".")
                case .sequence(let items): found[name] = .many(items.map { $0.string ?? "?" })
                default: found[name] = .one(value.string ?? "?")
                }
            }
        }
        let yaml = try String(contentsOfFile: "\(deliveredFolder)/pawl.yaml", encoding: .utf8)
        walk(try #require(try Parser(yaml: yaml).singleRoot()), "")
        #expect(found == Dictionary(uniqueKeysWithValues: ConfigurationKey.table.map { ($0.name, $0.standard) }))
    }

    /// A key without effect is a promise that nobody keeps: each one's value is read outside of this module.
    @Test func everyKeyIsReadByTheProgram() throws {
        let sources = URL(filePath: deliveredFolder).deletingLastPathComponent().appending(path: "Sources")
        var text = ""
        for folder in ["pawl"] {
            let files = FileManager.default.enumerator(
                at: sources.appending(path: folder), includingPropertiesForKeys: nil)
            for case let file as URL in files ?? .init() where file.pathExtension == "swift" {
                text += try String(contentsOf: file, encoding: .utf8)
            }
        }
        #expect(!text.isEmpty)
        // Where the property is called otherwise than the key.
        let properties = [
            "websocket.origins": "webSocketOrigins",
            "tls.certificate": "identity.certificate", "tls.key": "identity.key",
            "accept.trusted": "accept.trusts(", "accept.webirc_password_file": "webircPassword",
            "upstream.webirc_password_file": "webircPassword", "upstream.tls.ca": "authorities",
            "upstream.tls.certificate": "identity.certificate", "upstream.tls.key": "identity.key",
            "push.secret_file": "configuration.secret", "push.ca": "configuration.authorities",
            "upstream.flood.burst": "flood.burst", "storage_key.file": "case .file(",
            "queue.credentials": "queueCredentials",
            "queue.request_age": "queueRequestAge", "storage_key.environment": "case .environment(",
            "policy": "configuration.policy", "data": "configuration.data", "mapping": "configuration.mapping",
        ]
        for key in ConfigurationKey.table {
            let words = (key.name.split(separator: ".").last ?? "").split(separator: "_")
            let property = "." + words.enumerated().map { $0 == 0 ? String($1) : $1.capitalized }.joined()
            let section = ["kinds", "commands"].first { key.name.hasPrefix($0 + ".") }.map { "configuration.\($0)" }
            #expect(text.contains(section ?? properties[key.name] ?? property), "nobody reads \(key.name)")
        }
    }

    @Test func deliveredFileIsTheDefaults() throws {
        #expect(
            try PawlConfiguration.load(file: "\(deliveredFolder)/pawl.yaml", protocols: protocols)
                == PawlConfiguration.load(protocols: protocols))
    }

    @Test func linesOfTheDeliveredFileFitTheScreen() {
        for line in ConfigurationKey.document().split(separator: "\n") where line.contains("# ") && !line.contains("\"")
        {
            #expect(line.count <= 120)
        }
    }

    /// The first column of the README's table.
    @Test func theReadmeTellsWhatEachPolicyDoes() throws {
        let readme = URL(filePath: deliveredFolder).deletingLastPathComponent().appending(path: "README.md")
        let rows = try String(contentsOf: readme, encoding: .utf8).split(separator: "\n")
            .drop { !$0.hasPrefix("| policy |") }.prefix { $0.hasPrefix("|") }.dropFirst(2)
        let names = rows.flatMap { row in
            row.split(separator: "|")[0].split(separator: ",").map { $0.trimmingCharacters(in: [" ", "`"]) }
        }
        #expect(names == Policy.allCases.map(\.name))
    }

    /// The table of what changes for people names every text for which there is a choice, with its default.
    @Test func theOperationsPageTellsWhatIsChosen() throws {
        let page = URL(filePath: deliveredFolder).deletingLastPathComponent().appending(path: "deploy/OPERATIONS.md")
        let rows = try String(contentsOf: page, encoding: .utf8).split(separator: "\n").filter { $0.hasPrefix("|") }
        for text in CommandText.allCases {
            let row = try #require(rows.first { $0.contains("`commands.*.\(text.rawValue)`") }, "\(text)")
            #expect(text.verbs.allSatisfy { row.contains("`\($0)`") }, "\(row)")
            #expect(row.contains("`\(text.standard.rawValue)`"), "\(row)")
        }
    }

    @Test func exampleForNgIRCd() throws {
        let configuration = try PawlConfiguration.load(file: "\(deliveredFolder)/ngircd.yaml", protocols: protocols)
        #expect(configuration.upstream.url.description == "irc://127.0.0.1:6668")
        #expect(configuration.upstream.network == nil)
        #expect(configuration.policy == .observe)
    }

    @Test func exampleForInspIRCd() throws {
        let configuration = try PawlConfiguration.load(file: "\(deliveredFolder)/inspircd.yaml", protocols: protocols)
        #expect(configuration.listen.map(\.description) == ["ircs://0.0.0.0:6697", "irc://127.0.0.1:6667"])
        #expect(configuration.tls == .init(certificate: "/etc/pawl/certificate.pem", key: "/etc/pawl/key.pem"))
    }

    @Test func exampleForMatrix() throws {
        let configuration = try PawlConfiguration.load(file: "\(deliveredFolder)/matrix.yaml", protocols: protocols)
        #expect(configuration.listen.map(\.description) == ["https://0.0.0.0:8443", "http://127.0.0.1:8008"])
        #expect(configuration.upstream.url.description == "http://127.0.0.1:8009")
        #expect(configuration.upstream.network == nil)
        #expect(configuration.mapping == "/etc/pawl/mappings/matrix.yaml")
        #expect(configuration.policy == .observe)
    }

    @Test func exampleForOtherBackends() throws {
        let configuration = try PawlConfiguration.load(file: "\(deliveredFolder)/generic.yaml", protocols: protocols)
        #expect(configuration.listen.map(\.description) == ["http://127.0.0.1:8080"])
        #expect(configuration.upstream.url.description == "http://127.0.0.1:8081")
        #expect(configuration.mapping == "/etc/pawl/mappings/generic.yaml")
        #expect(configuration.policy == .observe)
    }

    @Test func namesAndVariablesAreUnique() {
        #expect(Set(ConfigurationKey.table.map(\.name)).count == ConfigurationKey.table.count)
        #expect(Set(ConfigurationKey.table.map(\.variable)).count == ConfigurationKey.table.count)
        #expect(ConfigurationKey.branches.isDisjoint(with: ConfigurationKey.table.map(\.name)))
    }

    /// Whatever the configuration holds comes back under its name, so nothing can be forgotten in `differences`.
    @Test func currentValuesOfTheDefaultsAreTheDefaults() throws {
        let configuration = try PawlConfiguration.load(protocols: protocols)
        for key in ConfigurationKey.table where key.derived == nil {
            guard let value = key.current(configuration) else { continue }
            #expect(value.yaml == key.standard.yaml, "\(key.name)")
        }
    }

    @Test(arguments: ConfigurationKey.table.map(\.name))
    func everyExampleIsGood(name: String) throws {
        let key = try #require(ConfigurationKey.named(name))
        var environment = ["PAWL_TLS_CERTIFICATE": "/c", "PAWL_TLS_KEY": "/k"]
        if name.hasPrefix("upstream.tls.") {
            environment["PAWL_UPSTREAM_URL"] = "ircs://irc.example.org"
            environment["PAWL_UPSTREAM_TLS_CERTIFICATE"] = "/c"
            environment["PAWL_UPSTREAM_TLS_KEY"] = "/k"
        }
        environment[key.variable] = key.example.joined
        if name == "mapping" || name == "control_plane.socket" {
            if name != "mapping" { environment["PAWL_MAPPING"] = "/m" }
            environment["PAWL_LISTEN"] = "http://127.0.0.1:8008"
            environment["PAWL_UPSTREAM_URL"] = "http://127.0.0.1:8009"
        }
        guard !name.hasSuffix("password_file"), !name.hasSuffix("secret_file") else { return }
        let configuration = try load(nil, environment)
        #expect(key.current(configuration)?.joinedForTest == key.example.joined)
    }

    @Test func listingNamesEverything() {
        let listing = ConfigurationKey.describe()
        for key in ConfigurationKey.table {
            #expect(listing.contains("\(key.name)\n    default: \(key.standardDescription)\n"))
            #expect(listing.contains("variable: \(key.variable);"))
            #expect(listing.contains(key.reason))
        }
        #expect(listing.hasPrefix("listen\n    default: [irc://127.0.0.1:6667]\n"))
    }
}

extension ConfigurationKey.Value {
    /// The value with its secret, which only a test may see.
    var joinedForTest: String {
        if case .secret(let text) = self { text } else { self.joined }
    }
}
