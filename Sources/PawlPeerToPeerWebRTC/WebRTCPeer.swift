#if WebRTC
    import CWebRTC

    /// What a peer reports, one after the other for each kind, on threads of GStreamer.
    enum WebRTCEvent: Sendable {
        /// The own description, as SDP.
        case described(String)
        /// A candidate as an attribute of SDP; nil after the last.
        case candidate(String?)
        case opened
        case message([UInt8])
        case text([UInt8])
        /// Less than ``WebRTCLimits/lowWater`` waits to be sent.
        case drained
        case ended
    }

    /// A peer of the C library; it ends when it is released.
    ///
    /// `@unchecked Sendable`: the pointer never changes, and the functions of the library may be called on any thread.
    final class WebRTCPeer: @unchecked Sendable {
        /// Receives the events. The library holds it until its last call.
        private final class Receiver: Sendable {
            let receive: @Sendable (WebRTCEvent) -> Void

            init(_ receive: @escaping @Sendable (WebRTCEvent) -> Void) { self.receive = receive }

            static func of(_ context: UnsafeMutableRawPointer) -> Receiver {
                Unmanaged<Receiver>.fromOpaque(context).takeUnretainedValue()
            }
        }

        private let pointer: OpaquePointer

        /// Nil if GStreamer has not all elements, or refuses a setting.
        init?(
            stun: String?, turn: [String], relayOnly: Bool, addresses: [String], offers: Bool,
            receive: @escaping @Sendable (WebRTCEvent) -> Void
        ) {
            let context = Unmanaged.passRetained(Receiver(receive))
            var events = cwebrtc_events(
                context: context.toOpaque(),
                described: { Receiver.of($0).receive(.described(String(cString: $1))) },
                candidate: { Receiver.of($0).receive(.candidate($1.map { String(cString: $0) })) },
                opened: { Receiver.of($0).receive(.opened) },
                message: { context, isText, bytes, count in
                    let copy = Array(UnsafeBufferPointer(start: bytes, count: bytes == nil ? 0 : count))
                    Receiver.of(context).receive(isText ? .text(copy) : .message(copy))
                },
                drained: { Receiver.of($0).receive(.drained) },
                ended: { Receiver.of($0).receive(.ended) },
                released: { Unmanaged<Receiver>.fromOpaque($0).release() })
            let made = Self.withCStrings(turn) { turn in
                Self.withCStrings(addresses) { addresses in
                    Self.withCString(stun) { stun in
                        var settings = cwebrtc_settings(
                            stun: stun, turn: turn.baseAddress, turn_count: turn.count, relay_only: relayOnly,
                            addresses: addresses.baseAddress, address_count: addresses.count,
                            low_threshold: WebRTCLimits.lowWater)
                        return cwebrtc_new(&settings, &events, offers)
                    }
                }
            }
            guard let made else {
                context.release()
                return nil
            }
            pointer = made
        }

        deinit { cwebrtc_free(pointer) }

        /// Takes the other side's description; false if the library refuses it.
        func setRemote(_ sdp: String, isOffer: Bool) -> Bool { cwebrtc_set_remote(pointer, sdp, isOffer) }

        func add(candidate: String) { cwebrtc_add_candidate(pointer, candidate) }

        /// Sends a message; false if the channel does not carry it.
        func send(_ bytes: some Collection<UInt8>, isText: Bool = false) -> Bool {
            let sent = bytes.withContiguousStorageIfAvailable { buffer in
                buffer.baseAddress.map { cwebrtc_send(pointer, isText, $0, buffer.count) } ?? false
            }
            return sent ?? send(Array(bytes), isText: isText)
        }

        /// Bytes that wait to be sent.
        var buffered: UInt64 { cwebrtc_buffered(pointer) }

        private static func withCString<Result>(
            _ text: String?, _ body: (UnsafePointer<CChar>?) -> Result
        ) -> Result { text.map { $0.withCString { body($0) } } ?? body(nil) }

        private static func withCStrings<Result>(
            _ texts: [String], _ body: (UnsafeBufferPointer<UnsafePointer<CChar>>) -> Result
        ) -> Result {
            func add(_ rest: ArraySlice<String>, _ pointers: [UnsafePointer<CChar>]) -> Result {
                guard let first = rest.first else { return pointers.withUnsafeBufferPointer(body) }
                return first.withCString { add(rest.dropFirst(), pointers + [$0]) }
            }
            return add(texts[...], [])
        }
    }
#endif
