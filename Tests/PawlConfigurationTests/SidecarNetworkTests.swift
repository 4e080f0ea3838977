import Foundation
import Testing

@testable import PawlConfiguration

/// Several networks in one configuration file of a sidecar.
@Suite struct SidecarNetworkTests {
    /// A file that is removed with the value.
    private final class File {
        let path: String

        init(_ yaml: String) throws {
            let url = FileManager.default.temporaryDirectory.appending(path: "networks-\(UUID()).yaml")
            try yaml.write(to: url, atomically: true, encoding: .utf8)
            path = url.path
        }

        deinit { try? FileManager.default.removeItem(atPath: path) }

        func names() throws -> [String] { try SidecarNetworks.names(in: path) }

        func load(_ network: String?) throws -> PawlConfiguration {
            try PawlConfiguration.load(file: path, network: network, protocols: protocols)
        }

        func networks() throws -> [(name: String, configuration: PawlConfiguration)] {
            try names().map { (name: $0, configuration: try load($0)) }
        }

        func check() throws { try SidecarNetworks.check(networks()) }
    }

    private static let two = """
        data: /keys
        sidecar: {marks: tags}
        networks:
          libera:
            listen: [irc://127.0.0.1:7001]
            upstream: {url: ircs://irc.libera.chat}
          oftc:
            listen: [irc://127.0.0.1:7002]
            upstream: {url: ircs://irc.oftc.net, network: OFTC}
            sidecar: {marks: off}
            data: /elsewhere
        """

    @Test func eachNetworkHasItsKeysOverTheCommonOnes() throws {
        let file = try File(Self.two)
        let networks = try file.networks()
        #expect(networks.map(\.name) == ["libera", "oftc"])
        let (libera, oftc) = (networks[0].configuration, networks[1].configuration)
        #expect(libera.listen.map(\.description) == ["irc://127.0.0.1:7001"])
        #expect(libera.upstream.url.host == "irc.libera.chat" && libera.upstream.network == nil)
        #expect(libera.data == "/keys/libera" && libera.admin.socket == "/keys/libera/pawl.sock")
        #expect(libera.sidecar.marks == .tags)
        #expect(oftc.upstream.url.host == "irc.oftc.net" && oftc.upstream.network == "OFTC")
        #expect(oftc.data == "/elsewhere" && oftc.sidecar.marks == .off)
        try file.check()
    }

    @Test func aFileOfOneNetworkStaysAsItIs() throws {
        let file = try File("data: /keys\nlisten: [irc://127.0.0.1:7001]\n")
        let names = try file.names()
        #expect(names.isEmpty)
        let data = try file.load(nil).data
        #expect(data == "/keys")
        let empty = try File("").names()
        #expect(empty.isEmpty)
    }

    /// `pawl serve` is for one backend.
    @Test func aGatewayHasNoNetworks() throws {
        let file = try File(Self.two)
        let error = #expect(throws: ConfigurationError.self) { try file.load(nil) }
        #expect(error?.problems.map(\.code) == [.unknownKey])
    }

    @Test(arguments: [
        "networks:", "networks: []", "networks: {}", "networks: {a: }", "networks: {a: 1}",
        "networks: {../a: {policy: off}}", "networks: {'': {policy: off}}", "networks: {.a: {policy: off}}",
        "networks: {a b: {policy: off}}", "networks: {[a]: {policy: off}}",
    ]) func wrongNetworksAreRefused(_ yaml: String) throws {
        let file = try File(yaml)
        #expect(throws: ConfigurationError.self, "\(yaml)") { try file.names() }
    }

    @Test func aWrongKeyOfANetworkIsNamedWithItsLine() throws {
        let file = try File("networks:\n  a:\n    lsten: [irc://127.0.0.1:7001]\n")
        let error = #expect(throws: ConfigurationError.self) { try file.load("a") }
        #expect(error?.description.contains("line 3") == true && error?.description.contains("`listen`") == true)
    }

    @Test(arguments: [
        "networks: {a: {listen: [irc://127.0.0.1:7001], data: /a}, b: {listen: [irc://127.0.0.1:7001], data: /b}}",
        "networks: {a: {listen: [irc://127.0.0.1:7001]}, b: {listen: [irc://127.0.0.1:7002]}}",
    ]) func networksShareNothing(_ yaml: String) throws {
        let file = try File(yaml)
        #expect(throws: ConfigurationError.self) { try file.check() }
    }
}
