// Rooms of a sidecar: which members can receive the room's key, and whether a message is sealed.

import Devices
import Envelope
import IRCCodec
import NIOCore
import Protection
import Reports
import RequestQueue
import Vault

extension IRCConnectionMachine {
    /// Ours: the pause before the same missing key is requested again, in nanoseconds.
    private static let askingPause: Int64 = 15_000_000_000

    /// The state of a room, for the judgement of messages to it.
    func sidecarRoom(_ name: String, _ sidecar: SidecarConnection) -> SidecarRoom {
        SidecarRoom(
            isMember: isMember(of: name), isWhole: sidecar.people.isWhole(name),
            wasSealed: state(of: name, sidecar).isSealed)
    }

    /// Whether the latch of a room is up.
    package func isProtected(room: String) -> Bool {
        environment.latches.latch(of: .ofRoom(room)) > .plaintext
    }

    /// The members of a room that can receive its key.
    func readers(in room: String, _ sidecar: SidecarConnection) -> [SealJob.Member] {
        sidecar.people.readers(in: room).map { reader in
            SealJob.Member(
                account: reader.account, nick: reader.nick,
                capacity: lineCapacity(verb: "NOTICE", target: reader.nick))
        }
    }

    /// Notifies the person which members of a sealed room cannot read it, if that has changed.
    func notifyOfOutsiders(in room: String, _ written: String, _ sidecar: SidecarConnection, _ out: MachineOutput) {
        let outsiders = sidecar.people.others(in: room)
            .subtracting(sidecar.people.readers(in: room).map { ExactText($0.nick) })
        guard sidecar.exchange.outsiders[room, default: []] != outsiders else { return }
        sidecar.exchange.outsiders[room] = outsiders
        guard !outsiders.isEmpty else { return }
        let nicks = outsiders.sorted().map(\.text)
        notify(Notices.roomOutsiders(written, nicks, isProtected: isProtected(room: room)), inRoom: room, out)
    }

    /// Requests the key of a room from a sender.
    func askForKey(
        of room: String, from nick: String, _ sidecar: SidecarConnection, _ now: Timestamp, _ out: MachineOutput
    ) {
        let asked = "\(support.caseMapping.fold(nick)) \(room)"
        sidecar.exchange.asked = sidecar.exchange.asked.filter { $0.value + Self.askingPause > now.monotonic }
        guard sidecar.exchange.asked[asked] == nil else { return }
        sidecar.exchange.asked[asked] = now.monotonic
        control(ControlMessage.senderKeyWanted(room: room).body, to: nick, device: nil, sidecar, now, out)
    }
}
