import Foundation
import NIOCore
import NIOPosix
import PeerKit
import Synchronization

/// The chat behind its two ports. Everything runs on one event loop, so that what is said in an order is heard in it.
final class Backend: Sendable {
    private struct State {
        var chat: Chat
        var faults = Faults()
        /// Requests and frames as they came, whatever was done about them.
        var received: [JSONValue] = []
        var sockets: [ObjectIdentifier: (user: String, channel: any Channel)] = [:]
        /// All connections of clients.
        var connections: [ObjectIdentifier: any Channel] = [:]
        var listener: (any Channel)?
        var port = 0
    }

    /// How often a long poll looks again.
    static let pause = TimeAmount.milliseconds(5)
    /// A longer one ends as if this had been asked for.
    static let longestPoll = 60_000

    let loop: any EventLoop
    private let state: Mutex<State>
    private let listen: @Sendable (Backend, Int) -> EventLoopFuture<any Channel>

    init(
        _ settings: Chat.Settings, on loop: any EventLoop,
        listen: @escaping @Sendable (Backend, Int) -> EventLoopFuture<any Channel>
    ) {
        self.loop = loop
        self.listen = listen
        state = Mutex(State(chat: Chat(settings)))
    }

    /// - Returns: The port.
    func start(port: Int) -> EventLoopFuture<Int> {
        listen(self, port).map { channel in
            self.state.withLock { state in
                (state.listener, state.port) = (channel, channel.localAddress?.port ?? port)
                return state.port
            }
        }
    }

    private static var now: Int { Int(Date().timeIntervalSince1970 * 1000) }

    // MARK: Requests

    func take(_ request: Request, from channel: any Channel, keepAlive: Bool) {
        note(request)
        let (delay, trouble) = state.withLock { state in
            (state.faults.delay, request.writesMessage ? state.faults.trouble[request.path[1]] : nil)
        }
        switch trouble {
        case .hang: break
        case .half: channel.close(mode: .output, promise: nil)
        case .stall, .drip, .slow, nil:
            loop.run(after: trouble == .slow ? Faults.slowness : delay) {
                self.perform(request, for: channel, keepAlive: keepAlive, trouble)
            }
        }
    }

    func note(_ request: Request) {
        let headers = request.headers.map { JSONValue.array([.string($0.name), .string($0.value)]) }
        note([
            "method": .string(request.method), "target": .string(request.target), "headers": .array(headers),
            "body": .string(String(decoding: request.body, as: UTF8.self)),
        ])
    }

    private func note(_ json: JSONValue) {
        state.withLock { $0.received.append(json) }
    }

    private func perform(
        _ request: Request, for channel: any Channel, keepAlive: Bool, _ trouble: Faults.Trouble?
    ) {
        let (answer, news, isLost) = state.withLock { state in
            if let refusal = state.faults.refusal(isWrite: request.writesMessage) {
                return (Answer(refusal), [Chat.News](), false)
            }
            var answer = state.chat.answer(request, at: Self.now)
            answer.cookie = state.faults.cookie
            let isLost = state.faults.losesAnswer(isWrite: request.writesMessage)
            return (answer, state.chat.takeNews(), isLost)
        }
        if isLost {
            channel.close(promise: nil)
        } else if trouble == .stall || trouble == .drip {
            answer.begin(on: channel, drips: trouble == .drip)
        } else if request.method == "GET", request.path == ["updates"], answer.status == 200 {
            let timeout = min(request.query("timeout").flatMap(Int.init) ?? 0, Self.longestPoll)
            poll(request, answer, for: channel, keepAlive: keepAlive, until: .now() + .milliseconds(Int64(timeout)))
        } else {
            answer.write(to: channel, keepAlive: keepAlive, withBody: request.method != "HEAD")
        }
        notify(news)
    }

    private func poll(
        _ request: Request, _ answer: Answer, for channel: any Channel, keepAlive: Bool, until end: NIODeadline
    ) {
        let isEmpty = (try? JSONValue(answer.body))?["conversations"].object.isEmpty ?? false
        guard isEmpty, request.query("since") != nil, channel.isActive, NIODeadline.now() < end else {
            return answer.write(to: channel, keepAlive: keepAlive, withBody: true)
        }
        loop.scheduleTask(in: Self.pause) {
            let again = self.state.withLock { $0.chat.answer(request, at: Self.now) }
            self.poll(request, again, for: channel, keepAlive: keepAlive, until: end)
        }
    }

    // MARK: WebSockets

    func account(_ token: String?) -> String? {
        state.withLock { try? $0.chat.account(token) }
    }

    func open(_ channel: any Channel, of user: String) {
        state.withLock { $0.sockets[ObjectIdentifier(channel)] = (user, channel) }
    }

    func take(_ text: [UInt8], from channel: any Channel) {
        let user = state.withLock { $0.sockets[ObjectIdentifier(channel)]?.user }
        note(["account": .string(user ?? ""), "frame": .string(String(decoding: text, as: UTF8.self))])
        let delay = state.withLock { $0.faults.delay }
        loop.run(after: delay) { self.perform(text, from: channel, of: user) }
    }

    /// Logs a socket in, by a token or by a name and a password.
    private func logIn(_ frame: JSONValue, _ channel: any Channel) {
        let found: (user: String, token: String)? = state.withLock { state in
            if let token = frame["token"].string { return (try? state.chat.account(token)).map { ($0, token) } }
            let user = frame["user"].string ?? ""
            return (try? state.chat.login(user, frame["password"].string ?? "")).map { (user, $0) }
        }
        guard let found else {
            return WebSocketHandler.send(["type": "result", "error": "unauthorized"], to: channel)
        }
        open(channel, of: found.user)
        WebSocketHandler.send(
            ["type": "result", "result": ["id": .string(found.user), "token": .string(found.token)]], to: channel)
    }

    private func perform(_ text: [UInt8], from channel: any Channel, of user: String?) {
        let frame = (try? JSONValue(text)) ?? .null
        if frame["type"] == "login" { return logIn(frame, channel) }
        guard let user = user ?? state.withLock({ $0.sockets[ObjectIdentifier(channel)]?.user }) else {
            return WebSocketHandler.send(["type": "error", "error": "unauthorized"], to: channel)
        }
        let isWrite = Chat.writesMessage(frame)
        let (answer, news, isLost) = state.withLock { state in
            if let refusal = state.faults.refusal(isWrite: isWrite) {
                var answer = refusal.json
                (answer["type"], answer["id"]) = ("error", frame["id"])
                return (JSONValue?.some(answer), [Chat.News](), false)
            }
            let answer = state.chat.answer(frame, by: user, at: Self.now)
            let isLost = state.faults.losesAnswer(isWrite: isWrite)
            return (answer, state.chat.takeNews(), isLost)
        }
        if isLost {
            close(channel)
            channel.close(promise: nil)
        } else if let answer {
            WebSocketHandler.send(answer, to: channel)
        }
        notify(news)
    }

    private func notify(_ news: [Chat.News]) {
        guard !news.isEmpty else { return }
        let (sockets, wraps) = state.withLock { (Array($0.sockets.values), $0.chat.settings.wrapsFrames) }
        for piece in news {
            let frame = wraps ? Chat.wrapped(piece.frame) : piece.frame
            for socket in sockets where piece.to.contains(socket.user) {
                WebSocketHandler.send(frame, to: socket.channel)
            }
        }
    }

    // MARK: Connections

    func connected(_ channel: any Channel) {
        state.withLock { $0.connections[ObjectIdentifier(channel)] = channel }
        channel.closeFuture.whenComplete { _ in self.close(channel) }
    }

    private func close(_ channel: any Channel) {
        state.withLock { state in
            state.connections[ObjectIdentifier(channel)] = nil
            state.sockets[ObjectIdentifier(channel)] = nil
        }
    }

    // MARK: Control

    func control(_ request: Request) -> EventLoopFuture<Answer> {
        switch (request.method, request.path.joined(separator: "/")) {
        case ("GET", "_control/received"):
            return done(Answer(200, ["received": .array(state.withLock { $0.received })]))
        case ("GET", "_control/messages"):
            let messages = state.withLock { $0.chat.conversations.values.flatMap(\.messages) }
                .sorted { $0.position < $1.position }
            return done(Answer(200, ["messages": .array(messages.map(\.json))]))
        case ("GET", "_control/faults"):
            return done(Answer(200, state.withLock { $0.faults.json }))
        case ("PUT", "_control/faults"):
            do throws(Refusal) {
                return set(try Faults(try request.json()))
            } catch {
                return done(Answer(error))
            }
        case ("POST", "_control/tear"):
            return tear().map { .done }
        default:
            return done(Answer(.notFound("the control port knows received, messages, faults and tear")))
        }
    }

    private func done(_ answer: Answer) -> EventLoopFuture<Answer> {
        loop.makeSucceededFuture(answer)
    }

    private func set(_ faults: Faults) -> EventLoopFuture<Answer> {
        let (wasAway, listener, port) = state.withLock { state in
            defer { state.faults = faults }
            return (state.faults.away, state.listener, state.port)
        }
        guard wasAway != faults.away else { return done(.done) }
        guard faults.away else { return start(port: port).map { _ in .done } }
        return (listener?.close() ?? loop.makeSucceededVoidFuture()).flatMap { self.tear() }.map { .done }
    }

    private func tear() -> EventLoopFuture<Void> {
        let connections = state.withLock { Array($0.connections.values) }
        return EventLoopFuture.whenAllComplete(connections.map { $0.close() }, on: loop).map { _ in }
    }
}

extension EventLoop {
    /// At once where there is nothing to wait for, so that order is kept.
    fileprivate func run(after milliseconds: Int, _ body: @escaping @Sendable () -> Void) {
        guard milliseconds > 0 else { return body() }
        scheduleTask(in: .milliseconds(Int64(milliseconds)), body)
    }
}
