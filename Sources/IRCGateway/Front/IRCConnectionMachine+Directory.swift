// A front gateway's connection with a client that can encrypt. The client proves its device and queries the directory;
// its envelopes pass unchanged.

import DeviceDirectory
import Envelope
import IRCCodec
import NIOCore
import Protection
import Reports
import RequestQueue
import StorePort
import Vault

extension IRCConnectionMachine {
    /// Challenges a client with the capability to prove its device for its current account.
    package func challenge(_ out: MachineOutput) {
        guard case .front(let device) = role else { return }
        device.withdraw()
        guard capabilities.clientAsked, isRegistered, policy.takesPart else { return }
        out.jobs.append(.front(.challenge(id)))
    }

    /// Handles a line of the control plane.
    func controlLine(_ line: IRCLine, _ device: ClientDevice, _ now: Timestamp, _ out: MachineOutput) {
        switch device.take(line, now: now.monotonic) {
        case .waiting: break
        case .malformed:
            environment.tally.add(.badLines)
            sendFrame(.refused("the frame is malformed"), id: UInt32(line.text(0) ?? "") ?? 0, out)
        case .whole(let number, let bytes):
            guard let message = try? DirectoryMessage(bytes) else {
                return sendFrame(.refused("this gateway does not know this message"), id: number, out)
            }
            perform(message, number, device, now, out)
        }
    }

    private func perform(
        _ message: DirectoryMessage, _ number: UInt32, _ device: ClientDevice, _ now: Timestamp, _ out: MachineOutput
    ) {
        guard isRegistered else { return sendFrame(.refused("register first"), id: number, out) }
        withdrawRemoved(device, now, out)
        guard device.mayAsk(now: now.monotonic) else {
            return sendFrame(.refused("too many requests in a minute"), id: number, out)
        }
        func submit(_ request: DirectoryJob.Request) {
            out.jobs.append(.directory(DirectoryJob(connection: id, id: number, account: account, request: request)))
        }
        switch message {
        case .publish(let deviceList, let published, let signature):
            guard let nonce = device.nonce else {
                return sendFrame(.refused("wait for the challenge"), id: number, out)
            }
            guard !environment.roster.isHeldElsewhere(published.id, than: id, of: account) else {
                return sendFrame(
                    .refused("this device is in use under another name: a sidecar is for one person"), id: number, out)
            }
            submit(.publish(deviceList, published, signature: signature, nonce: nonce))
        case .find(let nick):
            guard device.id != nil else { return sendFrame(.refused("prove your device first"), id: number, out) }
            let folded = support.caseMapping.fold(nick)
            guard let entry = environment.roster.owner(ofFoldedNick: folded), entry.participates else {
                return sendFrame(.found(.outsider), id: number, out)
            }
            guard entry.device != nil else { return sendFrame(.found(.legacy), id: number, out) }
            submit(.find(entry.account, connections: environment.roster.connections(of: entry.account)))
        case .replenish(let keys):
            guard let proven = device.id else {
                return sendFrame(.refused("prove your device first"), id: number, out)
            }
            submit(.replenish(keys, proven))
        case .list(let deviceList):
            guard device.id != nil else { return sendFrame(.refused("prove your device first"), id: number, out) }
            submit(.list(deviceList))
        case .challenge, .done, .refused, .found, .low:
            sendFrame(.refused("a client may not send this message"), id: number, out)
        }
    }

    /// Sends a reply of the vault to the client.
    func directoryAnswer(
        _ number: UInt32, _ message: DirectoryMessage, _ device: ClientDevice, _ now: Timestamp, _ out: MachineOutput
    ) {
        if number == ControlFrames.unasked, case .refused = message {
            // The directory no longer has the device that the connection had proven.
            device.withdraw()
            updateRoster(now)
        }
        guard case .challenge(let nonce, _) = message else { return sendFrame(message, id: number, out) }
        device.challenged(nonce: nonce)
        sendFrame(.challenge(nonce: nonce, account: account.name), id: number, out)
    }

    func proven(
        _ number: UInt32, _ proven: DeviceID, _ oneTime: Int, _ device: ClientDevice, _ now: Timestamp,
        _ out: MachineOutput
    ) {
        guard device.proved(proven) else {
            return sendFrame(.refused("the account has changed: prove the device for the new one"), id: number, out)
        }
        updateRoster(now)
        recordEvidence(now, out, registrations: 0)
        sendFrame(.done(oneTime: oneTime), id: number, out)
    }

    /// Withdraws the device of the client if the directory no longer has it.
    private func withdrawRemoved(_ device: ClientDevice, _ now: Timestamp, _ out: MachineOutput) {
        guard device.withdrawIfRemoved(of: account) else { return }
        updateRoster(now)
        sendFrame(.refused("this device was removed from your account"), id: ControlFrames.unasked, out)
    }

    private func sendFrame(_ message: DirectoryMessage, id number: UInt32, _ out: MachineOutput) {
        for line in ControlFrames.lines(message.bytes, id: number) {
            deliver(":\(capabilities.serverName) \(line)", out)
        }
    }

    // MARK: Envelopes of capable clients

    /// Forwards an envelope of the client's own device unchanged.
    ///
    /// - Returns: whether the line was an envelope, and is handled.
    func passesEnvelope(
        _ line: IRCLine, _ raw: ByteBuffer, _ device: ClientDevice, _ now: Timestamp, _ out: MachineOutput
    ) -> Bool {
        withdrawRemoved(device, now, out)
        guard let own = device.id ?? device.removed, line.key.isText, let target = line.text(0),
            let span = line.parameter(1)
        else { return false }
        var header: [UInt8]?
        switch Armour.parse(Array(line.slice(span).readableBytesView)[...]) {
        case .whole(let bytes): header = bytes
        case .fragment(_, 0, _, let bytes): header = bytes
        case .fragment: break
        case .notice, .damaged, nil: return false
        }
        if let header {
            guard let (kind, sender) = Envelope.claim(of: header), sender == own else {
                environment.tally.add(.openWrongSource)
                reply(531, [target], Notices.otherDevice, label: line.tag("label"), out)
                return true
            }
            guard device.id != nil else {
                reply(531, [target], Notices.notOwnDevice, label: line.tag("label"), out)
                return true
            }
            if kind != .introduction {
                // Devices send control messages as NOTICE; these are not counted as messages.
                if line.key == .privmsg { environment.tally.add(.sentDevice) }
                protect(target, device, now, out)
            }
        }
        // The first line of an envelope of a removed device was refused.
        if device.id != nil { forward(raw, now, out) }
        return true
    }

    /// Raises the latch of a conversation in which both ends use their own devices.
    private func protect(_ target: String, _ device: ClientDevice, _ now: Timestamp, _ out: MachineOutput) {
        let folded = support.caseMapping.fold(target)
        guard let entry = environment.roster.owner(ofFoldedNick: folded), entry.device != nil,
            case .pass(let conversation?) = judgement.envelope(from: account, to: .one(.capable(entry.account))),
            device.protects(entry.account)
        else { return }
        let own = support.caseMapping.fold(nick ?? "")
        let isFirst = conversation.first == account
        out.jobs.append(.protect(conversation, names: isFirst ? (own, folded) : (folded, own)))
    }

    /// Whether the client opens envelopes itself: it has proven its device, or has requested the capability.
    ///
    /// Between the registration of the client and the commit of its proof, the backend delivers messages to it already. They
    /// pass unchanged: their senders have the backend's acknowledgement and do not send them again.
    var clientReadsEnvelopes: Bool {
        switch role {
        case .front(let device): device.id != nil || device.removed == nil && capabilities.clientAsked
        case .sidecar: false
        }
    }

    /// Delivers an envelope that the sender's own device has sealed.
    ///
    /// - Returns: whether the envelope is handled; else the vault has to open it.
    func deliversToDevice(
        _ envelope: [UInt8], _ line: IRCLine, _ raws: [ByteBuffer], _ now: Timestamp, _ out: MachineOutput
    ) -> Bool {
        guard case .front(let device) = role else { return false }
        withdrawRemoved(device, now, out)
        let source = line.folded(line.sourceNick, support.caseMapping)
        guard
            device.isFromDevice(
                envelope, of: environment.roster.possibleOwners(ofFoldedNick: source, now: now.monotonic))
        else { return false }
        guard clientReadsEnvelopes else {
            if device.isNoticeDue(of: source) {
                notify(Notices.forOtherDevice(from: line.string(line.sourceNick)), out)
            }
            return true
        }
        environment.tally.add(.openedDevice)
        for raw in raws { show(translatedLine(raw).map { [$0] } ?? [], out) }
        return true
    }

    /// A raw line, translated to the client's capabilities; nil if the client does not get such lines.
    func translatedLine(_ raw: ByteBuffer) -> ByteBuffer? {
        guard let line = parse(raw, raw.readableBytes) else { return raw }
        return translated(line, raw)
    }
}
