// Calls about mailbox messages and blobs. All calls but a registration need a proven device, so that a device that is
// not on its account's list can neither send nor receive.

import DeviceDirectory
import Envelope
import HTTPCodec
import JSONCodec
import NIOCore
import Protection
import StorePort
import Vault

extension ControlCaller {
    /// Parses a call about mailboxes or blobs.
    static func request(
        _ route: ControlRoute, _ query: RequestQuery, _ body: ByteBuffer
    ) throws(ControlAnswer.Fault) -> MailJob.Request {
        switch route {
        case .post: return try post(try ControlBody(body))
        case .fetch:
            let waits = try waitingTime(query) > 0
            guard case .single(let text) = query["after"] else { return .fetch(after: 0, waits: waits) }
            guard let after = UInt64(text) else { throw .malformed }
            return .fetch(after: after, waits: waits)
        case .acknowledge: return .acknowledge(try ControlBody(body).number("through"))
        case .receipt:
            let body = try ControlBody(body)
            guard
                let kind = [MailboxEntry.Kind.read, .received].first(where: {
                    (try? body.text("kind", limit: 16)) == $0.name
                }
                )
            else { throw .malformed }
            return .receipt(kind, id: try body.text("id", limit: Mailboxes.idLimit), try body.account("to"))
        case .publishBlob:
            let blob = try ControlBody(body).bytes("blob")
            guard blob.count <= PublishedBlobs.sizeLimit else { throw .tooLong }
            return .publish(blob)
        case .blob(let id): return .read(id)
        case .removeBlob(let id): return .remove(id)
        case .register:
            let content = try ControlBody(body).bytes("registration")
            guard content.count <= Mailboxes.registrationBytes else { throw .tooLong }
            return .register(content)
        case .publishConfig:
            let config = try ControlBody(body).bytes("config")
            guard config.count <= PublishedConfigs.sizeLimit else { throw .tooLong }
            return .publishConfig(config)
        case .config(let account): return .readConfig(account)
        case .setPushToken: return .setPushToken(try ControlBody(body).text("token", limit: PushTokens.sizeLimit))
        case .removePushToken: return .setPushToken(nil)
        case .challenge, .me, .publish, .devices, .bundles, .replenish, .list, .relay, .socket, .postCall, .calls:
            throw .unknownCall
        }
    }

    /// Ours: how long a call for messages may wait, in seconds. Less than what proxies allow an answer to take.
    private static let longestWait = 25

    /// How long a call for messages waits if there are none, in seconds; at most ``longestWait``.
    static func waitingTime(_ query: RequestQuery) throws(ControlAnswer.Fault) -> Int {
        guard case .single(let text) = query["wait"] else { return 0 }
        guard let seconds = UInt32(text) else { throw .malformed }
        return min(Int(seconds), longestWait)
    }

    private static func post(_ body: ControlBody) throws(ControlAnswer.Fault) -> MailJob.Request {
        var recipients: [MailJob.Recipient] = []
        for entry in try body.objects("recipients", limit: Mailboxes.recipientLimit) {
            let content = try entry.bytes("message")
            guard content.count <= Mailboxes.contentLimit else { throw .tooLong }
            let device = try entry.device("device")
            guard !recipients.contains(where: { $0.device == device }) else { throw .malformed }
            recipients.append(
                MailJob.Recipient(account: try entry.account("account"), device: device, content: content))
        }
        let common = try body.bytesIfAny("body")
        guard common.count <= Mailboxes.bodyLimit else { throw .tooLong }
        return .post(id: try body.text("id", limit: Mailboxes.idLimit), recipients, body: common)
    }
}

extension ControlAnswer {
    /// - Parameter oneTime: how many one-time prekeys of the device are left, if it needs more; in a page of messages.
    init(_ answer: MailAnswer, oneTime: Int? = nil) {
        switch answer {
        case .accepted(let count): self.init([("accepted", .integer(count))])
        case .done: self.init([])
        case .published(let id): self.init([("id", .string(id))])
        case .blob(let bytes): self.init([("blob", .bytes(bytes))])
        case .config(let bytes): self.init([("config", .bytes(bytes))])
        case .entries(let entries, let more):
            var members: [(name: String, value: JSONFragment)] = [
                ("messages", .array(entries.map { Self.mailboxEntry($0.sequence, $0.mailboxEntry, $0.body) })),
                ("more", .boolean(more)),
            ]
            if let oneTime { members.append(("one_time", .integer(oneTime))) }
            self.init(members)
        case .refused(.unknownDevices(let devices)): self.init(.unknownDevices(devices))
        case .refused(.full): self.init(.full)
        case .refused(.notFound): self.init(.notFound)
        case .refused(.notMaster):
            self.init(.refused("only the device that has made the account's list publishes its keys"))
        case .refused(.store): self.init(.notStored)
        }
    }

    private static func mailboxEntry(_ sequence: UInt64, _ mailboxEntry: MailboxEntry, _ body: [UInt8]) -> JSONFragment
    {
        var members: [(name: String, value: JSONFragment)] = [
            ("sequence", .integer(Int(clamping: sequence))), ("kind", .string(mailboxEntry.kind.name)),
            ("from", .string(mailboxEntry.from.name)), ("at", .integer(Int(mailboxEntry.at))),
        ]
        if mailboxEntry.device.value != 0 { members.append(("device", .string(mailboxEntry.device.name))) }
        if !mailboxEntry.id.isEmpty { members.append(("id", .string(mailboxEntry.id))) }
        if mailboxEntry.kind == .lost {
            members.append(("count", .integer(mailboxEntry.lostCount)))
        } else if !mailboxEntry.content.isEmpty {
            members.append(("message", .bytes(mailboxEntry.content)))
        }
        if !body.isEmpty { members.append(("body", .bytes(body))) }
        return .object(members)
    }
}
