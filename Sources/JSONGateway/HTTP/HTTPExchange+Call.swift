// Clients that can encrypt: how the gateway recognises them, and their calls of the control plane.

import Envelope
import HTTPCodec
import NIOCore
import Protection
import Vault

extension HTTPExchange {
    /// The WebSocket subprotocol by which a client announces that it can encrypt.
    ///
    /// The client offers it beside the backend's own. The gateway removes it from requests whose answer it reads.
    package static let subprotocol = "pawl.v1"

    /// The device that the client's credential has proven; nil if none.
    func provenDevice(of client: Client) -> DeviceID? {
        environment.devices.device(of: client.account, by: client.credential.digest, in: environment.directory)
    }

    /// Records the account and its software as behind the gateway.
    func noteEvidence(
        of client: Client, _ head: RequestHead, asked: Bool, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) {
        // An application service receives its users' messages past the gateway, so these users are outsiders.
        guard client.credential.acting == nil else { return }
        let software = head.headers.first("User-Agent")
        if let row = environment.accounts.note(client.account, software: software, asked: asked, now: now) {
            actions.append(.submit(.record([row])))
        }
    }

    // MARK: Calls

    /// Begins a request for the gateway itself, which never reaches the backend.
    func beginCall(_ head: RequestHead, _ now: Timestamp, _ actions: inout [ExchangeAction]) -> State {
        if let crossOrigin = mapping.crossOrigin, head.isPreflight,
            head.headers.first("Access-Control-Request-Method") != nil
        {
            let answer = crossOrigin.preflight(for: head.headers, credentials: mapping.account.credentials)
            return respond(answer, ByteBuffer(), &actions)
        }
        return identify(.call(head), now, &actions)
    }

    func collect(_ call: Call, _ actions: inout [ExchangeAction]) -> State {
        actions.append(.collectRequest(limit: ControlCaller.bodyLimit))
        return .collectingCall(call)
    }

    func carryOut(
        _ call: Call, _ body: ByteBuffer, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        let (head, client) = (call.head, call.client)
        let caller = ControlCaller(
            environment: environment, connection: connection, account: client.account,
            credential: client.credential.digest)
        switch caller.begin(head.method, head.target[...], body, now) {
        case .answer(let answer): return self.answer(head, answer, &actions)
        case .submit(let job, let call):
            actions.append(.submit(job))
            return .calling(call, head)
        case .relay(let call):
            guard head.isRelayUpgrade else {
                return self.answer(head, ControlAnswer(.noUpgrade(Self.relayProtocol)), &actions)
            }
            actions.append(.wake(at: now.monotonic + RelayLimits.waitingTime))
            actions.append(.joinRelay(call))
            return .waitingForRelay(call, head)
        case .socket(let device):
            guard let accept = head.webSocketAccept else {
                return self.answer(head, ControlAnswer(.noUpgrade(Self.socketProtocol)), &actions)
            }
            let answer = ResponseHead(
                101, reason: "Switching Protocols",
                headers: ["Connection": "Upgrade", "Upgrade": Self.socketProtocol, "Sec-WebSocket-Accept": accept])
            actions.append(.beginMailSocket(answer, MailSocketMachine(device, caller, client.credential)))
            return .over
        }
    }

    /// The protocol of a WebSocket. RFC 6455 section 4.2.
    package static let socketProtocol = "websocket"

    /// The protocol to which a connection is upgraded that relays bytes. It has no form of its own.
    package static let relayProtocol = "pawl-relay"

    /// Answers both devices of a relay.
    func begin(_ call: RelayCall, _ actions: inout [ExchangeAction]) -> State {
        let head = ResponseHead(
            101, reason: "Switching Protocols", headers: ["Connection": "Upgrade", "Upgrade": Self.relayProtocol])
        actions.append(.beginRelay(head, call))
        return .over
    }

    func wait(
        _ call: ControlCall, _ head: RequestHead, _ now: Timestamp, _ actions: inout [ExchangeAction]
    ) -> State {
        actions.append(.wake(at: now.monotonic + call.wait))
        return .waitingForMail(call, head)
    }

    /// Answers a call.
    func answer(_ request: RequestHead, _ answer: ControlAnswer, _ actions: inout [ExchangeAction]) -> State {
        let (head, body) = answer.response
        return respondItself(head, body, to: request, &actions)
    }
}

extension RequestHead {
    /// Whether the request asks for a relay. RFC 9110 section 7.8.
    fileprivate var isRelayUpgrade: Bool {
        headers.tokens("Connection").contains("upgrade") && headers.tokens("Upgrade") == [HTTPExchange.relayProtocol]
    }
}

extension HeaderFields {
    /// Removes a subprotocol that is meant for the gateway only.
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
