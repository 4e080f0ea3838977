// Notices of a sidecar in the window of the conversation that they are about, and how the person's own messages go.

import Devices
import Envelope
import IRCCodec
import NIOCore
import Protection
import Reports
import RequestQueue

extension IRCConnectionMachine {
    // MARK: Notices about a person

    /// Sends a notice about a person or a room; in a sidecar it is shown in that conversation.
    func notify(_ text: String, about nick: String, _ out: MachineOutput) {
        if role.isSidecar, let name = room(nick)?.name, isMember(of: name) { return notify(text, inRoom: nick, out) }
        deliver(noticeLine(text, about: nick), out)
    }

    /// A notice about a person as a line for the client.
    ///
    /// Clients show a NOTICE in the private conversation with its source. Its user and host distinguish it from one that
    /// the person has sent.
    func noticeLine(_ text: String, about nick: String) -> ByteBuffer {
        let isNick =
            !nick.isEmpty && room(nick) == nil && nick.utf8.allSatisfy { $0 > 0x20 && !"!@,:".utf8.contains($0) }
        guard role.isSidecar, isNick, support.caseMapping.fold(nick) != foldedNick else { return noticeLine(text) }
        return ByteBuffer(line: ":\(nick)!pawl@localhost NOTICE \(self.nick ?? "*") :*** \(text)")
    }

    /// Whether a text of the backend would be taken for a mark or a notice of the sidecar.
    func imitatesSidecar(_ line: IRCLine, _ text: [UInt8]) -> Bool {
        ProtectionMark.isImitated(by: text)
            || line.key == .notice
                && TextBeginning.all(of: text[...]).contains { $0.starts(with: "***".utf8) }
    }

    /// Refuses a message of the client.
    ///
    /// Clients show the numeric in the window of the server, so a sidecar repeats it in that of the conversation.
    func notSent(_ target: String, _ text: String, label: String?, _ out: MachineOutput) {
        reply(531, [target], text, label: label, out)
        guard role.isSidecar else { return }
        if let room = room(target)?.name {
            if isMember(of: room) { notify(text, inRoom: target, out) }
        } else {
            notify(text, about: target, out)
        }
    }

    // MARK: Own lines

    /// Notifies the person, if it has changed, how messages to a recipient go.
    func noteOwn(
        _ outcome: OwnLines.Outcome, _ message: OutboundMessage, keysOf peer: AccountID? = nil,
        _ sidecar: SidecarConnection, _ out: MachineOutput
    ) {
        guard settings.marks == .text, message.body.isText,
            CTCP(message.body.text).map({ $0 == .action }) ?? true
        else { return }
        let (target, name) = (message.target, support.caseMapping.fold(message.target))
        let isFirst = sidecar.ownLines.last(name) == nil
        guard name != foldedNick, !isService(name), sidecar.ownLines.isNoticeDue(outcome, name) else { return }
        if let room = room(target)?.name {
            // Notices about sealed rooms are those of RoomProtection.
            guard outcome == .plain, isFirst, sidecar.isOnBareServer, isMember(of: room) else { return }
            let others = sidecar.people.namesWithoutKeys(in: room)
            if !others.isEmpty { notify(Notices.roomGoesPlain(room, others), inRoom: target, out) }
            return
        }
        switch outcome {
        case .sealed:
            let isVerified = peer.flatMap { sidecar.peers[$0] }?.isVerified == true
            notify(Notices.goesSealed(target, isVerified: isVerified), about: target, out)
        case .plain: notify(Notices.goesPlain(target, hasFront: !sidecar.isOnBareServer), about: target, out)
        case .waiting: notify(Notices.waitsForKeys(target), about: target, out)
        }
    }

    /// Whether a folded name is that of a service. A message to one is a command, perhaps with a password.
    ///
    /// Names like `*status` are those of a bouncer's modules; no nick of a server begins so.
    func isService(_ name: String) -> Bool {
        name.hasPrefix("*") || name.hasSuffix("serv") || name.contains("@")
            || settings.exemptions.contains { Mask.matches($0.nick, name) }
    }

    /// Whether the notice about an envelope that was not opened is due. Failures that the next messages share are
    /// reported once.
    func isNoticeDue(
        _ failure: OpenFailure, from nick: String, _ sidecar: SidecarConnection, _ now: Timestamp
    ) -> Bool {
        let name: String
        switch failure {
        case .unknownSender: name = "unknown"
        case .olderVersion: name = "older"
        case .newerVersion: name = "newer"
        case .tooManyPeers: name = "full"
        case .ownListForked: name = "forked"
        default: return true
        }
        return sidecar.ownLines.isNoticeDue(failure: name, from: support.caseMapping.fold(nick), now: now.monotonic)
    }
}
