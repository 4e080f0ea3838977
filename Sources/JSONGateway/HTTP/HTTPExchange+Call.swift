// Clients that can encrypt: their calls of the control plane, and what shows that they can.

import Envelope
import HTTPCodec
import NIOCore
import Protection
import Vault

extension HTTPExchange {
    /// The WebSocket subprotocol by which a client says that it can encrypt. Offered beside the backend's own; the backend
    /// does not see it.
    package static let subprotocol = "pawl.v1"

    /// The device that the request's credential has proven.
    var provenDevice: DeviceID? {
        guard let account, let credential else { return nil }
        return environment.devices.device(of: account, by: credential.digest, in: environment.directory)
    }

    /// Whether the client says that it can, which proves nothing.
    var asksForEncryption: Bool {
        isUpgrade && head.headers.tokens("Sec-WebSocket-Protocol").contains(Self.subprotocol)
    }

    /// Notes what the account's client has shown.
    func noteEvidence(asked: Bool, _ now: Moment, _ actions: inout [ExchangeAction]) {
        // An application service gets the messages of those in whose name it writes past the gateway, so these are outsiders.
        guard let account, credential?.acting == nil else { return }
        let software = head.headers.first("User-Agent")
        if let row = environment.accounts.note(account, software: software, asked: asked, now: now) {
            actions.append(.submit(.record([row])))
        }
    }

    // MARK: Calls

    /// A request for the gateway itself: whatever becomes of it, the backend does not see it.
    mutating func beginCall(_ now: Moment, _ actions: inout [ExchangeAction]) {
        isCall = true
        isUpgrade = false
        if let crossOrigin = mapping.crossOrigin, head.isPreflight,
            head.headers.first("Access-Control-Request-Method") != nil
        {
            let answer = crossOrigin.preflight(for: head.headers, credentials: mapping.account.credentials)
            return respond(answer, ByteBuffer(), &actions)
        }
        identify(now, &actions)
    }

    mutating func collectCall(_ actions: inout [ExchangeAction]) {
        stage = .requestBody
        actions.append(.collectRequest(limit: ControlCall.bodyLimit))
    }

    mutating func carryOutCall(_ body: ByteBuffer, _ now: Moment, _ actions: inout [ExchangeAction]) {
        guard let account, let credential else { return }
        var call = ControlCall(
            environment: environment, connection: connection, account: account, credential: credential.digest)
        switch call.begin(head.method, head.target[...], body, now) {
        case .answer(let answer): answerCall(answer, &actions)
        case .submit(let job):
            stage = .call
            self.call = call
            actions.append(.submit(job))
        }
    }

    mutating func answerCall(_ answer: ControlAnswer, _ actions: inout [ExchangeAction]) {
        let (head, body) = answer.response
        respondItself(head, body, &actions)
    }
}

extension HeaderFields {
    /// Takes away what a client says to the gateway alone.
    mutating func removeSubprotocol(_ name: String) {
        let others = self["Sec-WebSocket-Protocol"].flatMap { $0.split(separator: ",") }
            .map { $0.trimmingSpaces }.filter { $0.lowercased() != name }
        if others.isEmpty {
            remove("Sec-WebSocket-Protocol")
        } else {
            set("Sec-WebSocket-Protocol", to: others.joined(separator: ", "))
        }
    }
}

extension Substring {
    fileprivate var trimmingSpaces: String {
        var text = drop { $0 == " " || $0 == "\t" }
        while let last = text.last, last == " " || last == "\t" { text.removeLast() }
        return String(text)
    }
}
