// The jobs of a person's own device in a sidecar.

import CommitLoop
import DeviceDirectory
import DeviceSessions
import Devices
import DoubleRatchet
import Envelope
import Protection
import StorePort
import Vault

extension IRCParticipants {
    /// Does a job of the own device. The reply is the refusal until the job has another one.
    mutating func perform(_ job: IRCSidecarJob, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit) {
        (unit.reply, unit.failure) = (job.refusal, job.refusal)
        switch job {
        case .introduce(let connection, let ticket, let capacity):
            introduce(connection, ticket, capacity, own, now, &unit)
        case .decide(let name, let decision): endSessions(with: own.decide(name, decision, &unit), own, &unit)
        case .revoke(let device, let farewell): revoke(device, farewell, own, now, &unit)
        case .askRoom(let job): ask(job, own, now, &unit)
        case .publish(let connection, let nonce, let account):
            publish(connection, nonce, account, own, now, &unit)
        case .replenish(let connection): replenish(connection, own, now, &unit)
        case .found(let job): found(job, own, now, &unit)
        }
    }

    /// Makes the lines of an introduction, which send our keys to a peer.
    private mutating func introduce(
        _ connection: ConnectionID, _ ticket: UInt64, _ capacity: Int, _ own: OwnDevice, _ now: Timestamp,
        _ unit: inout Unit
    ) {
        let id = MessageID(requestIDs.next(in: .only, at: now))
        guard
            let envelope = try? own.introduction(id, now, random: &vault.random, &unit.changes)
        else { return }
        let bodies = Armour.split(envelope.bytes, id: UInt32(truncatingIfNeeded: id.value), capacity: capacity)
        unit.reply = (connection, .sidecar(.introduction(ticket: ticket, bodies: bodies ?? [])))
    }

    /// Removes a device from the person's list, and makes the lines that tell it.
    private mutating func revoke(
        _ device: DeviceID, _ farewell: Farewell?, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) {
        let box = try? own.sessions(with: device, in: vault)
        guard own.revoke(device, &unit) else { return }
        if let farewell, let box {
            let id = MessageID(requestIDs.next(in: .only, at: now))
            let body = ControlMessage.acknowledge(own.deviceList).body
            let padded = try? padded(body, besides: vault.overhead(box), capacity: Farewell.capacity)
            let envelope = padded.flatMap { try? own.lastEnvelope($0, id, to: device, with: box, in: vault) }
            let bodies = envelope.flatMap {
                Armour.split($0.bytes, id: UInt32(truncatingIfNeeded: id.value), capacity: Farewell.capacity)
            }
            unit.reply = (farewell.connection, .sidecar(.farewell(nick: farewell.nick, bodies: bodies ?? [])))
        }
        endSessions(with: [device], own, &unit)
    }

    private mutating func endSessions(with devices: [DeviceID], _ own: OwnDevice, _ unit: inout Unit) {
        vault.drop(devices.map { own.session(with: $0) })
        unit.changes += devices.map { .removeSessions(device: $0) }
    }

    /// Stores, after the commit, the folded nick under which a peer was seen.
    func remember(alias nick: String, of peer: AccountID, _ unit: inout Unit) {
        unit.onCommit { state, _, _ in state.vault.latches.remember(name: nick, of: peer, for: .own) }
    }
}
