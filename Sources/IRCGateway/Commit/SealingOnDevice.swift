// The person's own device in a sidecar: requests with messages for other people's devices.

import CommitLoop
import DeviceSessions
import Devices
import Envelope
import Protection
import StorePort
import Vault

extension IRCParticipants {
    /// Seals a message for all devices of its recipient, and for the person's other devices.
    ///
    /// - Throws: ``SealRefusal``, or what the ratchet throws.
    mutating func deviceEnvelope(
        _ job: SealJob, _ id: MessageID, _ own: OwnDevice, _ unit: inout Unit
    ) throws -> Envelope {
        let recipients = try own.recipients(of: job.recipient, only: job.device, in: vault)
        guard !recipients.isEmpty else { throw SealRefusal.keysMissing }
        let body = try padded(job.body, besides: own.overhead(of: recipients, in: vault), capacity: job.capacity)
        return try own.seal(body, id, for: recipients, in: vault, &unit.shared)
    }

    /// The requests that send our list to a peer with an older version of it; to be sent before the next message.
    mutating func news(
        _ job: SealJob, _ own: OwnDevice, _ now: Timestamp, _ unit: inout Unit
    ) throws -> [Request] {
        guard job.body.kind != .control, let message = own.news(for: job.recipient, &unit.changes) else { return [] }
        var controlJob = job
        controlJob.verb = "NOTICE"
        controlJob.body = message.body
        let envelope = try deviceEnvelope(controlJob, MessageID(requestIDs.next(in: .only, at: now)), own, &unit)
        return [try insert(envelope, controlJob, now, &unit)]
    }
}
