import Devices
import DoubleRatchet
import Envelope
import Protection
import Reports
import StorePort
import TestKit
import Testing

@Suite struct PeerTableTests {
    /// A full table is not an unknown sender: new keys would be offered for ever, and none accepted.
    @Test func aFullTableHasAReasonOfItsOwn() throws {
        var random = SeededGenerator(seed: 1)
        var changes: [StoreChange] = []
        let device = HostedDevice(id: DeviceID(1), account: .own, identity: IdentityKeyPair(random: &random))
        var state = try OwnDeviceState(
            device: device, sealer: StorageSealer(key: [UInt8](repeating: 7, count: 32)), store: InMemoryStore(),
            &changes)
        func list(_ number: UInt64) -> DeviceList {
            let identity = IdentityKeyPair(random: &random)
            return DeviceList(of: ListedDevice(id: DeviceID(number), identity: identity.publicKey), identity: identity)
        }
        let known = list(2)
        for number in 1..<PinTable.peerLimit {
            state.put(Peer(name: .nick("peer\(number)"), deviceList: known, since: 0), &changes)
        }
        let stranger = list(3)
        func assess() -> OwnDeviceState.ListAssessment {
            state.assess(stranger, with: DeviceID(3), as: [.nick("bob")], now: Timestamp(monotonic: 0, wall: 0))
        }
        guard case .new(let peer) = assess() else {
            Issue.record("the last place is refused")
            return
        }
        #expect(peer.name == .nick("bob"))
        state.put(Peer(name: .nick("last"), deviceList: known, since: 0), &changes)
        guard case .refused(.tooManyPeers) = assess() else {
            Issue.record("a peer too many is accepted, or refused for another reason")
            return
        }
        #expect(Notices.failure(.tooManyPeers, from: "bob", inSidecar: true) != nil)
    }
}
