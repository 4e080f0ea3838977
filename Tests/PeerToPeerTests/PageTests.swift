import Foundation
import PawlMessenger
import PawlPeerToPeerTCP
import PawlPeerToPeerWebRTC
import TestKit
import TestThreads
import Testing

/// `README.md` names the test of each defect and attack; a test that is renamed must not leave a row behind.
@Suite(.blocking) struct PeerToPeerPageTests {
    @Test func theLinesOfTheCataloguePageCompile() throws {
        let factory = IPv6TCPP2PTransportClientFactory(addresses: .interfaces, allowsIPv4: true)
        #expect(factory.disclosesAddress)
        let url = try #require(URL(string: "https://chat.example.org"))
        @Sendable func login(_ isRefused: Bool) async throws -> GatewayCredential { .bearer("token") }
        let relay = GatewayRelayP2PTransportClientFactory(url: url) { isRefused in try await login(isRefused) }
        #expect(!relay.disclosesAddress)
        let examples = try Catalogue(of: "PawlPeerToPeerTCP", file: #filePath).missing(
            in: "Tests/PeerToPeerTests/PageTests.swift")
        #expect(examples.blocks.isEmpty && examples.count == 2, "\(examples)")
    }

    #if WebRTC
        @Test func theLinesOfTheCatalogueOfWebRTCCompile() throws {
            let relay = WebRTCP2PTransportClientFactory.Relay(
                server: .init(host: "turn.example.org"), user: "user", password: "password")
            let factory = WebRTCP2PTransportClientFactory(
                addresses: .interfaces, stunServer: .init(host: "stun.example.org"), relays: [relay], relayOnly: false)
            #expect(factory.disclosesAddress)
            let examples = try Catalogue(of: "PawlPeerToPeerWebRTC", file: #filePath).missing(
                in: "Tests/PeerToPeerTests/PageTests.swift")
            #expect(examples.blocks.isEmpty && examples.count == 1, "\(examples)")
        }
    #endif

    @Test func theTestsOfThePageExist() throws {
        let tests = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        let page = try String(contentsOf: tests.appending(path: "README.md"), encoding: .utf8)
        let folders = [tests, tests.deletingLastPathComponent().appending(path: "MessengerTests")]
        let texts = try folders.flatMap { folder in
            try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0.hasSuffix(".swift") }
                .map { try String(contentsOf: folder.appending(path: $0), encoding: .utf8) }
        }
        let references = page.matches(of: /`([A-Z]\w*Tests)\.(\w+)`/).filter { $0.2 != "swift" }
        #expect(references.count > 35)
        for reference in references {
            let isThere = texts.contains {
                $0.contains("struct \(reference.1)") && $0.contains("func \(reference.2)(")
            }
            #expect(isThere, "\(reference.0) is not there")
        }
    }
}
