import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// A Matrix client with windows that was written without knowledge of Pawl, before a real Synapse.
@Suite(.blocking, .serialized, .enabled(if: ProcessInfo.processInfo.environment["PAWL_LONG"] != nil))
struct MatrixDesktopTests {
    private static let patience = Duration.seconds(900)

    @Test func nhekoUnderEveryPolicy() throws {
        let lab = try MatrixLab(policy: "observe")
        defer { lab.stop() }
        let (alice, bob) = (try lab.person("alice"), try lab.person("bob"))
        let room = try lab.room([alice, bob])
        let nheko = try Nheko(port: lab.gateway.port, user: "alice", timeout: Self.patience)
        defer { nheko.stop() }
        for (policy, word) in [("observe", "Wiesenknopf"), ("opportunistic", "Kornblume"), ("hosted", "Ackerwinde")] {
            if policy != "observe" {
                let set = try lab.gateway.admin(["policy", "set", policy, "--yes"])
                #expect(set.succeeded, "\(set.stderr)")
            }
            try eventually("\(word) for bob", timeout: Self.patience, every: .seconds(5)) {
                try nheko.write("\(word) of alice", in: "bob")
                return try bob.texts(room).contains { $0.hasSuffix("\(word) of alice") }
            }
            try bob.send("\(word) of bob", to: room)
            try eventually("\(word) in nheko", timeout: Self.patience, every: .milliseconds(500)) {
                nheko.knows("\(word) of bob")
            }
            for text in ["\(word) of alice", "\(word) of bob"] {
                #expect(lab.synapse.files(showing: text).isEmpty == (policy == "hosted"), "\(text)")
            }
        }
    }
}
