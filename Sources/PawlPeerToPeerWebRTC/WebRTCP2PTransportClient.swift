#if WebRTC
    // A direct connection over a data channel: packets with their length before them, as one stream that is cut into
    // messages. The text "end" after the last packet is answered with the same; then both sides are closed.

    public import PawlMessenger
    import PeerConnection
    import Synchronization

    /// A direct connection over WebRTC.
    public final class WebRTCP2PTransportClient: P2PTransportClient {
        /// What the other side has to know.
        struct Own: Sendable {
            var description: WebRTCDescription
            var candidates: [WebRTCCandidate]
        }

        private struct State {
            var connected = ConnectionState.connecting
            var peer: WebRTCPeer?
            var reader = PacketReader(limit: P2PSettings.packetLimit)
            var inbox = P2PInbox()
            /// Senders that wait for room.
            var senders: [CheckedContinuation<Void, Never>] = []
            // Gathering: what has come, and the factory that waits for it.
            var description: WebRTCDescription?
            var candidates: [WebRTCCandidate] = []
            /// No candidates will follow.
            var isComplete = false
            /// What is there is enough.
            var isLate = false
            /// The factory has the description; candidates follow it from now on.
            var isTaken = false
            var gatherer: CheckedContinuation<Own, any Error>?
            var remoteCandidates = 0
        }

        private static let end = Array("end".utf8)

        /// From the handle of the factory.
        public let state: P2PFrameworkState
        /// Candidates that come after the description was sent.
        let lateCandidates: AsyncStream<WebRTCCandidate>
        private let late: AsyncStream<WebRTCCandidate>.Continuation
        /// Whether a candidate of this device may be sent.
        private let isOffered: @Sendable (WebRTCCandidate) -> Bool
        private let inner = Mutex(State())
        /// Held while a packet is cut, so that no other comes between its messages.
        private let cutting = Mutex(())

        init(state: P2PFrameworkState, isOffered: @escaping @Sendable (WebRTCCandidate) -> Bool) {
            (self.state, self.isOffered) = (state, isOffered)
            (lateCandidates, late) = AsyncStream.makeStream(bufferingPolicy: .bufferingOldest(WebRTCLimits.candidates))
        }

        deinit { late.finish() }

        /// Receives the packets.
        public var delegate: (any P2PTransportClientDelegate)? {
            get { inner.withLock { $0.inbox.delegate } }
            set {
                inner.withLock { $0.inbox.delegate = newValue }
                deliver()
            }
        }

        /// Whether packets can be sent.
        public var connected: ConnectionState { inner.withLock { $0.connected } }

        // MARK: Session

        /// Takes the peer that will report to this client.
        func use(_ peer: WebRTCPeer) {
            inner.withLock { state in
                if state.connected != .disconnected { state.peer = peer }
            }
        }

        /// Takes the description of the other side.
        func setRemote(_ description: WebRTCDescription, isOffer: Bool) throws {
            guard let peer = inner.withLock({ $0.peer }), peer.setRemote(description.sdp, isOffer: isOffer) else {
                ended()
                throw P2PError.transport("The description was refused.")
            }
        }

        /// Takes candidates of the other side, after its description. Too many are left out.
        func add(_ candidates: [WebRTCCandidate]) {
            for candidate in candidates {
                let next: (WebRTCPeer, Int)? = inner.withLock { state in
                    guard let peer = state.peer, state.remoteCandidates < 2 * WebRTCLimits.candidates else {
                        return nil
                    }
                    state.remoteCandidates += 1
                    return (peer, state.remoteCandidates)
                }
                guard let (peer, number) = next else { return }
                peer.add(candidate: candidate.attribute(foundation: number))
            }
        }

        /// The own description, with the candidates that were found in a time.
        func own(within time: Duration) async throws -> Own {
            let timer = Task { [weak self] in
                try await Task.sleep(for: time)
                self?.inner.withLock { $0.isLate = true }
                self?.resumeGatherer()
            }
            defer { timer.cancel() }
            return try await withTaskCancellationHandler {
                try await withCheckedThrowingContinuation { continuation in
                    let isRefused = inner.withLock { state in
                        guard state.connected != .disconnected, state.gatherer == nil else { return true }
                        state.gatherer = continuation
                        return false
                    }
                    if isRefused { return continuation.resume(throwing: P2PError.transport("There is no peer.")) }
                    resumeGatherer()
                }
            } onCancel: {
                ended()
            }
        }

        private func resumeGatherer() {
            let ready: (CheckedContinuation<Own, any Error>, Own)? = inner.withLock { state in
                guard let gatherer = state.gatherer, let description = state.description,
                    state.isComplete || state.candidates.count >= (state.isLate ? 1 : WebRTCLimits.candidates)
                else { return nil }
                (state.gatherer, state.isTaken) = (nil, true)
                return (gatherer, Own(description: description, candidates: state.candidates))
            }
            if let (gatherer, own) = ready { gatherer.resume(returning: own) }
        }

        private func found(_ candidate: WebRTCCandidate) {
            let isLate = inner.withLock { state in
                if !state.isTaken { state.candidates.append(candidate) }
                return state.isTaken
            }
            if isLate { late.yield(candidate) } else { resumeGatherer() }
        }

        // MARK: Events

        /// Takes an event of the peer.
        func receive(_ event: WebRTCEvent) {
            switch event {
            case .described(let sdp):
                guard let description = WebRTCDescription(sdp: sdp) else { return ended() }
                inner.withLock { $0.description = description }
                resumeGatherer()
            case .candidate(let attribute?):
                guard let candidate = WebRTCCandidate(attribute: attribute), isOffered(candidate) else { return }
                found(candidate)
            case .candidate(nil):
                inner.withLock { $0.isComplete = true }
                resumeGatherer()
            case .opened:
                inner.withLock { Self.open(&$0) }
                deliver()
            case .message(let bytes): received(bytes)
            case .text(Self.end): receivedEnd()
            case .text, .ended: ended()
            case .drained: resumeSenders()
            }
        }

        private static func open(_ state: inout State) {
            guard state.connected == .connecting else { return }
            state.connected = .connected
            state.inbox.append(.opened)
        }

        private func received(_ bytes: [UInt8]) {
            let isTaken = inner.withLock { state in
                guard state.connected != .disconnected else { return true }
                // The first message may overtake the event.
                Self.open(&state)
                state.reader.append(bytes)
                do {
                    while let packet = try state.reader.next() {
                        let limit = state.inbox.delegate == nil ? WebRTCLimits.unobservedInbox : WebRTCLimits.inbox
                        guard state.inbox.count < limit else { return false }
                        state.inbox.append(.packet(packet))
                    }
                    return true
                } catch {
                    return false
                }
            }
            deliver()
            if !isTaken { ended() }
        }

        /// The other side has sent its last packet.
        private func receivedEnd() {
            let (peer, last) = inner.withLock { ($0.peer, $0.connected) }
            ended()
            guard let peer, last == .connected else { return }
            // If this reply is lost, the library sends it again for a while.
            _ = peer.send(Self.end, isText: true)
            Task {
                try? await Task.sleep(for: WebRTCLimits.lingeringTime)
                withExtendedLifetime(peer) {}
            }
        }

        /// The connection has ended, or there will be none.
        func ended() {
            let (gatherer, peer) = inner.withLock { state -> (CheckedContinuation<Own, any Error>?, WebRTCPeer?) in
                guard state.connected != .disconnected else { return (nil, nil) }
                state.connected = .disconnected
                state.inbox.append(.closed)
                defer { (state.gatherer, state.peer) = (nil, nil) }
                return (state.gatherer, state.peer)
            }
            gatherer?.resume(throwing: P2PError.transport("The connection has ended."))
            late.finish()
            resumeSenders()
            deliver()
            // Released last: nothing of this client waits any more.
            withExtendedLifetime(peer) {}
        }

        // MARK: Packets

        /// Bytes that wait to be sent.
        var waiting: UInt64 { inner.withLock { $0.peer }?.buffered ?? 0 }

        private func resumeSenders() {
            let senders = inner.withLock { state in
                defer { state.senders = [] }
                return state.senders
            }
            for sender in senders { sender.resume() }
        }

        /// Waits until at most ``WebRTCLimits/highWater`` waits to be sent, or until the connection has ended.
        private func waitForRoom(_ peer: WebRTCPeer) async {
            while connected == .connected, peer.buffered > WebRTCLimits.highWater {
                await withCheckedContinuation { continuation in
                    let isAdded = inner.withLock { state in
                        guard state.connected == .connected else { return false }
                        state.senders.append(continuation)
                        return true
                    }
                    guard isAdded else { return continuation.resume() }
                    // It may have been sent between the two.
                    if peer.buffered <= WebRTCLimits.lowWater { resumeSenders() }
                }
            }
        }

        /// Sends a packet; waits if the other side does not read.
        public func sendMessage(_ message: [UInt8]) async throws {
            let peer = inner.withLock { $0.connected == .connected ? $0.peer : nil }
            guard let peer, (1...P2PSettings.packetLimit).contains(message.count) else {
                throw P2PError.transport("The packet cannot be sent.")
            }
            await waitForRoom(peer)
            let bytes = PacketReader.head(of: message) + message
            let isSent: Bool? = cutting.withLock { _ in
                guard connected == .connected else { return nil }
                for start in stride(from: 0, to: bytes.count, by: WebRTCLimits.messageSize) {
                    let piece = bytes[start..<min(start + WebRTCLimits.messageSize, bytes.count)]
                    guard peer.send(piece) else { return false }
                }
                return true
            }
            if isSent == false { ended() }
            guard isSent == true else { throw P2PError.transport("The packet cannot be sent.") }
            await waitForRoom(peer)
        }

        /// Closes the connection after the packets before: with the other side, or after three seconds.
        public func disconnect() async throws {
            let (peer, last) = inner.withLock { state in
                defer { if state.connected == .connected { state.connected = .disconnecting } }
                return (state.peer, state.connected)
            }
            guard last == .connected, let peer else {
                if last == .connecting { ended() }
                return
            }
            resumeSenders()
            guard cutting.withLock({ _ in peer.send(Self.end, isText: true) }) else { return ended() }
            Task {
                try? await Task.sleep(for: WebRTCLimits.closingTime)
                ended()
            }
        }

        /// Delivers what waits, one item after the other, if there is a delegate.
        private func deliver() {
            guard inner.withLock({ $0.inbox.begins() }) else { return }
            while let (item, delegate) = inner.withLock({ $0.inbox.next() }) { item.deliver(to: delegate, by: self) }
        }
    }
#endif
