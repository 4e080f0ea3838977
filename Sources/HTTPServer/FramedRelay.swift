// Relays a WebSocket whose messages the gateway inspects. Control frames keep the order of their side.
//
// What is held of messages counts in the budget, and so does a long message until its receiver has taken it. A relay
// without room ends with 1013, and one whose sender leaves a message unfinished with 1008.
//
// Messages that need not be read pass as they are, all of one read with one write. See `PassingMessages`.
//
// A message above the limit ends the relay, or passes in pieces, unread, while nothing is protected. What the gateway sends
// itself to the same side waits until it has passed, and so does the message until those before it have.

import HTTPCodec
import JSONGateway
import NIOCore
import NIOSupport
import Vault

/// Executes the actions of one ``WebSocketMachine``.
final class FramedRelay: WebSocketRelay, ReplyTarget {
    private let upstream: UpstreamConnection
    private unowned let connection: HTTPConnection
    private let inbox: ExchangeInbox
    private let lookups: Lookups
    private var socketMachine: WebSocketMachine
    private var clientReader: FrameReader
    private var backendReader: FrameReader
    private var clientBytes = ByteBuffer()
    private var backendBytes = ByteBuffer()
    /// Replies that the session waits for.
    private var pending = 0
    /// Close frames that wait for these replies, so that no earlier message is lost.
    private var heldClose: (toBackend: ByteBuffer?, toClient: ByteBuffer?)
    private var hasClosed = (client: false, backend: false)
    private var isOver = false
    /// Messages behind one that passes in pieces.
    private var behind: (toBackend: [WebSocketMessage], toClient: [WebSocketMessage]) = ([], [])
    /// Whether a message waits to pass until those before it are sent. Its side is not read meanwhile.
    private var waitsToPass = (client: false, backend: false)
    /// Frames for the backend, which are written together.
    private var backendFrames = ByteBuffer()
    /// Actions of the machine, empty between two events: its memory is used again.
    private var actions: [WebSocketAction] = []
    private var ending: Scheduled<Void>?
    /// The place in the budget of what is held.
    private let room: ByteReservation
    /// When a side must have sent more of its unfinished message.
    private var partDeadlines = (client: NIODeadline.distantFuture, backend: NIODeadline.distantFuture)
    private var partTimer = LazyTimer()

    /// Ours: actions whose memory a relay keeps, and bytes of frames that are written together.
    private static let keptActions = 16
    private static let framesTogether = 4 << 10

    init(
        _ socketMachine: WebSocketMachine, upstream: UpstreamConnection, connection: HTTPConnection,
        ended: ExchangeRunner
    ) {
        self.socketMachine = socketMachine
        self.upstream = upstream
        self.connection = connection
        clientReader = FrameReader(isMasked: true, limit: connection.limits.message)
        backendReader = FrameReader(isMasked: false, limit: connection.limits.message)
        lookups = Lookups(connection.origin)
        room = connection.services.budget.reservation(of: socketMachine.account)
        inbox = ended.inbox
        inbox.target = self
        if socketMachine.isLoggedIn { inbox.listen(to: socketMachine.account) }
    }

    package func receive(_ news: MessageNews) {
        take(.news(news))
        goOn()
    }

    package func receive(_ outcome: WriteOutcome, ticket: UInt64) {
        take(.written(ticket: ticket, outcome))
        goOn()
    }

    package func carry(_ write: SocketWrite) {
        // Behind a close frame nothing may be sent, and nothing comes.
        guard !isOver, !hasClosed.backend, !hasClosed.client || heldClose.toBackend != nil else {
            write.end(.unsent)
            return
        }
        take(.carry(write))
        goOn()
    }

    // MARK: The session

    private func take(_ event: WebSocketEvent) {
        guard !isOver else { return }
        // An action may lead to another event.
        var actions: [WebSocketAction] = []
        swap(&actions, &self.actions)
        socketMachine.take(event, at: connection.services.clock(), &actions)
        for action in actions where !isOver { perform(action) }
        actions.removeAll(keepingCapacity: actions.count <= Self.keptActions)
        swap(&actions, &self.actions)
    }

    private func perform(_ action: WebSocketAction) {
        switch action {
        case .toBackend(let bytes, let isText):
            let message = WebSocketMessage.data(bytes, isText: isText)
            if clientReader.isPassing { behind.toBackend.append(message) } else { toBackend(message) }
        case .toClient(let bytes, let isText):
            let message = WebSocketMessage.data(bytes, isText: isText)
            if backendReader.isPassing { behind.toClient.append(message) } else { toClient(message) }
        case .answer(let bytes): answer(bytes)
        case .look(let lookup):
            pending += 1
            lookups.send(lookup, for: socketMachine.account) { [weak self] event in
                switch event {
                case .found(let id, let head, let body): self?.settled(.found(id, head, body))
                case .notFound(let id): self?.settled(.notFound(id))
                default: break
                }
            }
        case .submit(let job):
            if job.isAnswered { pending += 1 }
            inbox.submit(job)
        case .enqueue(let write):
            pending += 1
            inbox.enqueueFrame(write)
        case .await(let token, let ticket): inbox.await(token, ticket: ticket)
        case .report(let defect): connection.services.defect(defect)
        case .loggedIn(let account, let credential):
            inbox.listen(to: account)
            connection.services.loggedIn(account, credential)
        case .close(let code, let reason): closeBoth(code, reason)
        }
    }

    package func answered(_ replies: [JSONReply]) {
        for reply in replies {
            pending = max(pending - 1, 0)
            take(.vault(reply))
        }
        goOn()
    }

    /// A WebSocket session uses no exchange events.
    package func receive(_: ExchangeEvent) {}

    private func settled(_ event: WebSocketEvent) {
        pending = max(pending - 1, 0)
        take(event)
        goOn()
    }

    private func goOn() {
        if isSettled {
            sendHeldClose()
        } else if pending == 0, hasClosed.client || hasClosed.backend {
            endLater()
        }
        pumpClient()
        pumpBackend()
        countHeld()
        flushBoth()
        readClient()
        upstream.readMore()
    }

    // MARK: Frames

    /// Whether a close frame may be sent: nothing before it waits for the vault, or for the queue.
    ///
    /// A client's close frame waits for the answers to its queued messages too, so that they need not wait for its next
    /// connection.
    private var isSettled: Bool {
        guard pending == 0 else { return false }
        return hasClosed.client && !hasClosed.backend ? !socketMachine.awaitsAnswers : !socketMachine.holdsAnswers
    }

    /// Sends the close frame that was received, or does so later.
    private func close() {
        if isSettled { sendHeldClose() } else if pending == 0 { endLater() }
    }

    /// Whether no message is delivered: too many answers are pending, or a login is.
    private var isCongested: Bool { pending >= connection.limits.pendingJobs || socketMachine.isIdentifying }

    private func pumpClient() {
        waitsToPass.client = false
        do throws(FrameFault) {
            while !isOver, !hasClosed.client, !isCongested {
                passFromClient()
                guard let message = try nextFromClient() else { return }
                switch message {
                case .data(let bytes, let isText): take(.fromClient(bytes, isText: isText))
                case .close(let bytes):
                    hasClosed.client = true
                    heldClose.toBackend = bytes
                    close()
                case .ping, .pong: toBackend(message)
                }
            }
        } catch {
            guard error == .tooLong, socketMachine.passesLongMessages(fromClient: true) else {
                return closeBoth(error.rawValue, Self.words(error))
            }
            guard socketMachine.beginLongMessage(fromClient: true, at: connection.services.clock()) else {
                waitsToPass.client = true
                return
            }
            clientReader.pass()
            pumpClient()
        }
    }

    private func pumpBackend() {
        waitsToPass.backend = false
        do throws(FrameFault) {
            while !isOver, !hasClosed.backend, !isCongested {
                passFromBackend()
                guard let message = try nextFromBackend() else { return }
                switch message {
                case .data(let bytes, let isText): take(.fromBackend(bytes, isText: isText))
                case .close(let bytes):
                    hasClosed.backend = true
                    heldClose.toClient = bytes
                    take(.backendEnded)
                    close()
                case .ping, .pong: toClient(message)
                }
            }
        } catch {
            guard error == .tooLong, socketMachine.passesLongMessages(fromClient: false) else {
                return closeBoth(error.rawValue, Self.words(error))
            }
            guard socketMachine.beginLongMessage(fromClient: false, at: connection.services.clock()) else {
                waitsToPass.backend = true
                return
            }
            backendReader.pass()
            pumpBackend()
        }
    }

    /// Passes the messages at the front that the machine need not read, as they were received, with one write.
    private func passFromClient() {
        guard clientBytes.readableBytes > 0, socketMachine.beginPassing(at: connection.services.clock()) else { return }
        let count = clientReader.wholeMessages(in: clientBytes) { text, isText in
            isText && socketMachine.passes(text)
        }
        socketMachine.endPassing()
        guard count > 0, let bytes = clientBytes.readSlice(length: count) else { return }
        writeBackendFrames()
        upstream.write(bytes, room: roomUntilWritten(bytes))
    }

    private func passFromBackend() {
        guard backendBytes.readableBytes > 0, socketMachine.passesBackend else { return }
        let count = backendReader.wholeMessages(in: backendBytes) { _, _ in true }
        guard count > 0, let bytes = backendBytes.readSlice(length: count) else { return }
        connection.write(bytes, room: roomUntilWritten(bytes))
    }

    /// The client's next message, behind the pieces of one that passes.
    private func nextFromClient() throws(FrameFault) -> WebSocketMessage? {
        while clientReader.isPassing {
            switch try clientReader.nextPiece(&clientBytes) {
            case nil: return nil
            case .control(let message): return message
            case .data(let bytes, let opcode, let isLast):
                let mask = connection.origin.nextMask()
                guard var frame = piece(bytes, opcode, isLast: isLast, mask: mask) else { return nil }
                writeBackendFrames()
                upstream.write(frame, room: roomUntilWritten(frame))
                connection.origin.giveBack(&frame)
                guard isLast else { continue }
                for message in behind.toBackend { toBackend(message) }
                behind.toBackend = []
            }
        }
        return try clientReader.next(&clientBytes)
    }

    private func nextFromBackend() throws(FrameFault) -> WebSocketMessage? {
        while backendReader.isPassing {
            switch try backendReader.nextPiece(&backendBytes) {
            case nil: return nil
            case .control(let message): return message
            case .data(let bytes, let opcode, let isLast):
                guard var frame = piece(bytes, opcode, isLast: isLast, mask: nil) else { return nil }
                connection.write(frame, room: roomUntilWritten(frame))
                connection.origin.giveBack(&frame)
                guard isLast else { continue }
                for message in behind.toClient { toClient(message) }
                behind.toClient = []
            }
        }
        return try backendReader.next(&backendBytes)
    }

    /// A piece of a message that passes, as a frame; nil if a protection has risen since the message began.
    ///
    /// Then the relay ends, also if the protection falls again: what follows is the rest of a message, no frame.
    private func piece(_ bytes: ByteBuffer, _ opcode: UInt8, isLast: Bool, mask: UInt32?) -> ByteBuffer? {
        guard socketMachine.passesLongMessages(fromClient: mask != nil) else {
            closeBoth(FrameFault.tooLong.rawValue, Self.words(.tooLong))
            return nil
        }
        var frame = connection.origin.scratch()
        frame.writeFrame(opcode, bytes, mask, isFinal: isLast)
        return frame
    }

    private static func words(_ fault: FrameFault) -> String {
        switch fault {
        case .malformed: "The gateway does not understand this frame."
        case .notText: "The reason of a close frame is not valid UTF-8."
        case .tooLong: "The message is too long for the gateway."
        }
    }

    private func toBackend(_ message: WebSocketMessage) {
        if backendFrames.readableBytes == 0 { backendFrames = connection.origin.scratch() }
        let before = backendFrames.readableBytes
        backendFrames.write(message, mask: connection.origin.nextMask())
        if backendFrames.readableBytes - before > connection.limits.window {
            writeBackendFrames(roomUntilWritten(backendFrames))
        } else if backendFrames.readableBytes > Self.framesTogether {
            writeBackendFrames()
        }
    }

    private func writeBackendFrames(_ room: ByteReservation? = nil) {
        guard backendFrames.readableBytes > 0 else { return }
        upstream.write(backendFrames, room: room)
        connection.origin.giveBack(&backendFrames)
        backendFrames = ByteBuffer()
    }

    private func flushBackend() {
        writeBackendFrames()
        upstream.flush()
    }

    private func toClient(_ message: WebSocketMessage) {
        var bytes = connection.origin.scratch()
        bytes.write(message, mask: nil)
        connection.write(bytes, room: roomUntilWritten(bytes))
        connection.origin.giveBack(&bytes)
    }

    /// Sends the answer to a call. Without room for a long one the relay ends: the client can make the call again.
    private func answer(_ bytes: ByteBuffer) {
        let message = WebSocketMessage.data(bytes, isText: true)
        if backendReader.isPassing { return behind.toClient.append(message) }
        guard bytes.readableBytes > connection.limits.window else { return toClient(message) }
        let room = connection.services.budget.reservation(of: socketMachine.account)
        guard room.resize(to: bytes.readableBytes, for: .webSocket) else {
            return closeBoth(1013, ExchangeRefusal.noRoomWords)
        }
        var frame = connection.origin.scratch()
        frame.write(message, mask: nil)
        connection.write(frame, room: room)
        connection.origin.giveBack(&frame)
    }

    // MARK: The budget

    /// Reserves room for a message that its receiver may not take at once; nil if every connection may hold as much.
    private func roomUntilWritten(_ bytes: ByteBuffer) -> ByteReservation? {
        guard bytes.readableBytes > connection.limits.window else { return nil }
        let room = connection.services.budget.reservation(of: socketMachine.account)
        room.set(bytes.readableBytes)
        return room
    }

    /// Bytes of messages that have not arrived whole, or that the relay does not look at yet.
    private var clientParts: Int { clientBytes.readableBytes + clientReader.fragmentBytes }
    private var backendParts: Int { backendBytes.readableBytes + backendReader.fragmentBytes }

    /// Whether a side has sent a part of a message and not its end. What passes in pieces leaves no parts.
    private var isClientUnfinished: Bool { clientParts > 0 || clientReader.isPassing }
    private var isBackendUnfinished: Bool { backendParts > 0 || backendReader.isPassing }

    private var behindBytes: Int {
        guard !behind.toBackend.isEmpty || !behind.toClient.isEmpty else { return 0 }
        return (behind.toBackend + behind.toClient).reduce(0) { count, message in
            if case .data(let bytes, _) = message { count + bytes.readableBytes } else { count }
        }
    }

    /// Reserves room for what is held, and frees the rest. Ends the relay if there is none.
    private func countHeld() {
        guard !isOver else { return }
        clientBytes.freeUnusedStorage()
        backendBytes.freeUnusedStorage()
        guard max(behind.toBackend.count, behind.toClient.count) <= WebSocketMachine.waitingLimit else {
            return closeBoth(1008, "Too many messages wait for the gateway.")
        }
        let count = clientParts + backendParts + socketMachine.waitingBytes + behindBytes
        if count != room.count, !room.resize(to: count, for: .webSocket) {
            return closeBoth(1013, ExchangeRefusal.noRoomWords)
        }
        if !isClientUnfinished { partDeadlines.client = .distantFuture }
        if !isBackendUnfinished { partDeadlines.backend = .distantFuture }
        armPartTimer()
    }

    private var isClientRead: Bool {
        !hasClosed.client && !isCongested && !waitsToPass.client && upstream.isWritable && connection.isWritable
    }

    private func armPartTimer() {
        let deadline = min(partDeadlines.client, partDeadlines.backend)
        guard deadline < .distantFuture else { return }
        partTimer.arm(deadline, on: connection.eventLoop) { [weak self] in self?.checkParts() }
    }

    /// Ends the relay if a side has left a message unfinished although it is read.
    private func checkParts() {
        partTimer.hasFired()
        guard !isOver else { return }
        let now = NIODeadline.now()
        if partDeadlines.client <= now && isClientRead || partDeadlines.backend <= now && readsAnswer {
            return closeBoth(1008, "The rest of a message has not come in time.")
        }
        let later = now + connection.limits.stall
        if partDeadlines.client <= now { partDeadlines.client = later }
        if partDeadlines.backend <= now { partDeadlines.backend = later }
        armPartTimer()
    }

    private func sendHeldClose() {
        if let bytes = heldClose.toBackend { toBackend(.close(bytes)) }
        if let bytes = heldClose.toClient { toClient(.close(bytes)) }
        heldClose = (nil, nil)
        if hasClosed.client, hasClosed.backend {
            // RFC 6455 section 7.1.1: the server closes first. The gateway does not wait until the backend does so.
            end()
        } else if hasClosed.client || hasClosed.backend {
            endLater()
        }
    }

    /// Sends a close frame with the same code to both sides, and ends the relay.
    private func closeBoth(_ code: UInt16, _ reason: String) {
        guard !isOver else { return }
        var bytes = ByteBuffer(integer: code)
        // Section 5.5: a control frame has at most 125 bytes.
        var words = Substring(reason)
        while words.utf8.count > 123 { words.removeLast() }
        bytes.writeSubstring(words)
        if !hasClosed.backend || heldClose.toClient != nil { toClient(.close(bytes)) }
        if !hasClosed.client || heldClose.toBackend != nil { toBackend(.close(bytes)) }
        end()
    }

    private func endLater() {
        guard ending == nil else { return }
        ending = connection.eventLoop.assumeIsolated().scheduleTask(in: connection.limits.closeTime) { [weak self] in
            self?.end()
        }
    }

    private func end() {
        guard !isOver else { return }
        finish()
        flushBoth()
        upstream.closeWhenWritten()
        connection.lingerOut()
    }

    private func finish() {
        isOver = true
        ending?.cancel()
        inbox.close()
        socketMachine.stopCarrying()
        lookups.cancel()
        partTimer.cancel()
        (clientBytes, backendBytes) = (ByteBuffer(), ByteBuffer())
        behind = ([], [])
        writeBackendFrames()
        (clientReader, backendReader) = (FrameReader(isMasked: true, limit: 0), FrameReader(isMasked: false, limit: 0))
        room.release()
    }

    // MARK: The client

    package func fromClient(_ bytes: ByteBuffer) {
        guard !isOver else { return }
        clientBytes.append(arrived: bytes)
        pumpClient()
        if isClientUnfinished { partDeadlines.client = .now() + connection.limits.stall }
        countHeld()
    }

    func clientReadComplete() {
        flushBoth()
        readClient()
    }

    private func readClient() {
        if isOver || isClientRead { connection.channel.read() }
    }

    func clientIsWritable() {
        upstream.readMore()
        readClient()
    }

    func clientInputEnded() {
        guard !isOver else { return }
        // The client sent no close frame, so the relay does not wait for the backend's.
        if hasClosed.client { endLater() } else { end() }
    }

    func clientClosed() {
        if !isOver { finish() }
        upstream.close()
    }

    func flushUpstream() { flushBackend() }

    private func flushBoth() {
        flushBackend()
        connection.flush()
    }

    package func stop() { closeBoth(1001, "The gateway is being shut down.") }

    // MARK: The backend

    var takesAnswer: Bool { true }
    package var readsAnswer: Bool { !isOver && !isCongested && !waitsToPass.backend && connection.isWritable }

    func upstreamBytes(_ bytes: ByteBuffer) {
        guard !isOver else { return }
        backendBytes.append(arrived: bytes)
        pumpBackend()
        if isBackendUnfinished { partDeadlines.backend = .now() + connection.limits.stall }
        countHeld()
    }

    package func upstreamReadComplete() { flushBoth() }

    func upstreamIsWritable() { readClient() }

    package func upstreamInputEnded() {
        guard !isOver else { return }
        if !hasClosed.backend { take(.backendEnded) }
        if isSettled || !hasClosed.backend { end() } else { endLater() }
    }

    func upstreamBroke(_: any Error) { upstreamInputEnded() }
}
