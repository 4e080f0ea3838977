// Handles one call of a capable client, over HTTP or in band: parses it, checks it, and answers with the vault's reply.
// The caller has resolved the account with the backend.

import DeviceDirectory
import Devices
import Envelope
import HTTPCodec
import JSONCodec
import NIOCore
import Protection
import Reports
import StorePort
import Vault

/// A client that makes calls: its account, which the backend has confirmed, and its connection.
struct ControlCaller: Sendable {
    /// Ours: maximum size of a call's body with its Base64 and JSON, in bytes.
    static let bodyLimit = 512 << 10

    /// What becomes of a call.
    enum Step: Sendable {
        case answer(ControlAnswer)
        /// The participants do this job; the call waits for their reply.
        case submit(JSONJob, ControlCall)
        /// The call waits for another device. Only for a request of its own, whose connection becomes the relay.
        case relay(RelayCall)
        /// The connection of a request of its own becomes the WebSocket of this device.
        case socket(DeviceID)
    }

    let environment: JSONEnvironment
    let connection: ConnectionID
    let account: AccountID
    let credential: CredentialCache.Digest

    init(
        environment: JSONEnvironment, connection: ConnectionID, account: AccountID, credential: CredentialCache.Digest
    ) {
        (self.environment, self.connection) = (environment, connection)
        (self.account, self.credential) = (account, credential)
    }

    /// The device that the caller has proven; nil if none.
    var device: DeviceID? {
        environment.devices.device(of: account, by: credential, in: environment.directory)
    }

    /// The owner of the credential, if the backend has confirmed it recently.
    func owner(_ now: Timestamp) -> CredentialCache.Owner {
        environment.credentials.owner(
            of: credential, now: now.monotonic, within: CredentialCache.memoryForCalls)
    }

    // MARK: Calls

    func begin(_ method: String, _ target: Substring, _ body: ByteBuffer, _ now: Timestamp) -> Step {
        do throws(ControlAnswer.Fault) {
            return try step(method, target, body, now)
        } catch {
            if case .tooMany = error {} else { environment.tally.add(.badLines) }
            return .answer(ControlAnswer(error))
        }
    }

    private func step(
        _ method: String, _ target: Substring, _ body: ByteBuffer, _ now: Timestamp
    ) throws(ControlAnswer.Fault) -> Step {
        let parts = target.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        let (path, query) = (parts.first ?? "", RequestQuery(parts.count > 1 ? parts[1] : nil))
        guard environment.policies.snapshot.policy(of: account).takesPart else { throw .policyIsOff }
        let known = ControlRoute(method, path)
        guard environment.devices.mayCall(account, isMail: known?.isMail ?? false, now: now.monotonic) else {
            throw .tooMany
        }
        guard body.readableBytes <= Self.bodyLimit else { throw .tooLong }
        guard let route = known else { throw .unknownCall }
        let wait = route.mayWait ? try Self.waitingTime(query) : 0
        let call = ControlCall(
            caller: self, route: route, number: UInt32(truncatingIfNeeded: environment.nextTicket()),
            wait: Int64(wait) * 1_000_000_000)
        switch route {
        case .challenge: return .submit(.challenge(connection), call)
        case .me: return .answer(me)
        case .publish:
            guard case .publish(let deviceList, let device, let signature) = try Self.message(body) else {
                throw .malformed
            }
            guard let nonce = environment.devices.takeChallenge(of: credential, now: now.monotonic) else {
                throw .noChallenge
            }
            return call.directory(.publish(deviceList, device, signature: signature, nonce: nonce))
        case .devices(let other):
            guard other == account || device != nil else { throw .notProven }
            return call.directory(.show(other))
        case .bundles(let other):
            guard device != nil else { throw .notProven }
            guard environment.directory[other] != nil else { throw .notFound }
            return call.directory(.find(other, connections: []))
        case .replenish:
            guard let device else { throw .notProven }
            guard case .replenish(let keys) = try Self.message(body) else { throw .malformed }
            return call.directory(.replenish(keys, device))
        case .list:
            guard device != nil else { throw .notProven }
            guard case .list(let deviceList) = try Self.message(body) else { throw .malformed }
            return call.directory(.list(deviceList))
        case .postCall, .calls: return .submit(.callRelay(try callRelayJob(call, query, body)), call)
        case .config(let other):
            guard other == account || device != nil else { throw .notProven }
            return call.mail(try Self.request(route, query, body))
        case .register: return call.mail(try Self.request(route, query, body))
        case .post, .fetch, .acknowledge, .receipt, .publishBlob, .blob, .removeBlob, .publishConfig:
            guard device != nil else { throw .notProven }
            return call.mail(try Self.request(route, query, body))
        case .setPushToken:
            guard device != nil else { throw .notProven }
            guard environment.push != nil else { throw .refused("this gateway has no push hook") }
            return call.mail(try Self.request(route, query, body))
        case .removePushToken:
            guard device != nil else { throw .notProven }
            return call.mail(try Self.request(route, query, body))
        case .socket:
            guard let device else { throw .notProven }
            return .socket(device)
        case .relay(let session):
            guard let device else { throw .notProven }
            guard case .single(let name) = query["account"], let other = ControlRoute.account(name),
                case .single(let text) = query["device"], let otherDevice = DeviceID(name: text)
            else { throw .malformed }
            guard environment.settings.relays.connections > 0 else { throw .unknownCall }
            return .relay(
                RelayCall(
                    session: session, own: device, of: account, by: credential, other: otherDevice, of: other))
        }
    }

    /// Parses the control message in `{"message":"BASE64"}`.
    private static func message(_ body: ByteBuffer) throws(ControlAnswer.Fault) -> DirectoryMessage {
        let bytes = try ControlBody(body).bytes("message")
        guard let message = try? DirectoryMessage(bytes) else { throw .malformed }
        return message
    }

    /// How many one-time prekeys of the proven device the directory has; nil without one.
    private var oneTimeLeft: Int? { device.flatMap { environment.directory[account]?.oneTime[$0] } }

    /// As ``oneTimeLeft``; nil while there are enough.
    fileprivate var oneTimeIfLow: Int? {
        oneTimeLeft.flatMap { $0 < PublishedDevice.lowWatermark ? $0 : nil }
    }

    private var me: ControlAnswer {
        let left = oneTimeLeft
        return ControlAnswer([
            ("account", .string(account.name)), ("device", device.map { .string($0.name) } ?? .null),
            ("one_time", left.map(JSONFragment.integer) ?? .null),
            ("policy", .string(environment.policies.snapshot.policy(of: account).name)),
        ])
    }

    /// The devices on an account's list, and whether their keys are published here.
    fileprivate func names(of account: AccountID) -> JSONFragment {
        let entry = environment.directory[account]
        return .array(
            (entry?.devices ?? []).map { listed in
                .object([
                    ("device", .string(listed.id.name)),
                    ("published", .boolean(entry?.published.contains(listed.id) ?? false)),
                ])
            })
    }
}

/// A call that waits for the reply of the participants.
struct ControlCall: Sendable {
    let caller: ControlCaller
    let route: ControlRoute
    /// The id of the job; the reply carries it.
    let number: UInt32
    /// How long the answer may take if there are no messages, in nanoseconds.
    let wait: Int64

    func directory(_ request: DirectoryJob.Request) -> ControlCaller.Step {
        let job = DirectoryJob(
            connection: caller.connection, id: number, account: caller.account, request: request)
        return .submit(.directory(job), self)
    }

    /// Whether the call goes on after a reply: there are no messages yet.
    func waits(after reply: JSONReply) -> Bool {
        guard wait > 0 else { return false }
        return switch reply {
        case .mail(id: number, .entries(let entries, more: false)): entries.isEmpty
        case .callRelay(id: number, .entries(let entries, more: false)): entries.isEmpty
        default: false
        }
    }

    /// The answer if nothing has come in the time.
    var emptyAnswer: ControlAnswer {
        route == .calls
            ? ControlAnswer(CallRelayAnswer.entries([], more: false))
            : ControlAnswer(MailAnswer.entries([], more: false), oneTime: caller.oneTimeIfLow)
    }

    func mail(_ request: MailJob.Request) -> ControlCaller.Step {
        let job = MailJob(
            connection: caller.connection, id: number, account: caller.account, device: caller.device, request: request)
        return .submit(.mail(job), self)
    }

    /// Converts a reply of the vault to the answer of this call; nil if the reply belongs to something else.
    func take(_ reply: JSONReply, _ now: Timestamp) -> ControlAnswer? {
        switch (route, reply) {
        case (.challenge, .directory(id: 0, .challenge(let nonce, _))):
            caller.environment.devices.challenge(caller.credential, with: nonce, now: now.monotonic)
            return ControlAnswer([
                ("account", .string(caller.account.name)), ("challenge", .bytes(nonce)),
            ])
        case (.publish, .proven(id: number, let device, let oneTime)):
            caller.environment.devices.prove(device, of: caller.account, by: caller.credential)
            return ControlAnswer([("device", .string(device.name)), ("one_time", .integer(oneTime))])
        case (_, .directory(id: number, let message)): return answer(message)
        case (.fetch, .mail(id: number, let answer)):
            return ControlAnswer(answer, oneTime: caller.oneTimeIfLow)
        case (_, .mail(id: number, let answer)): return ControlAnswer(answer)
        case (_, .callRelay(id: number, let answer)): return ControlAnswer(answer)
        default: return nil
        }
    }

    private func answer(_ message: DirectoryMessage) -> ControlAnswer {
        switch message {
        case .refused(let reason): return ControlAnswer(.refused(reason))
        case .done(let oneTime) where route == .replenish: return ControlAnswer([("one_time", .integer(oneTime))])
        case .done: return ControlAnswer([("devices", caller.names(of: caller.account))])
        case .found(.capable):
            guard case .devices(let other) = route else { return ControlAnswer([("message", .bytes(message.bytes))]) }
            return ControlAnswer([("devices", caller.names(of: other)), ("message", .bytes(message.bytes))])
        default: return ControlAnswer(.notFound)
        }
    }
}
