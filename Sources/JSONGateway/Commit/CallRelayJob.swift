// The calls about the signalling of calls between devices without keys.

package import CallSignalling
package import JSONCodec
package import Protection

/// One call about calls. The account of the device was confirmed by the backend; its name is what its app says.
package struct CallRelayJob: Sendable {
    package enum Request: Sendable {
        case post(RelayedMessage<JSONFragment>)
        /// - Parameter waits: the call is answered later if there are no entries.
        case fetch(after: UInt64, waits: Bool)
    }

    package var connection: ConnectionID
    package var id: UInt32
    package var device: RelayedDevice
    package var request: Request

    package init(connection: ConnectionID, id: UInt32, device: RelayedDevice, request: Request) {
        (self.connection, self.id, self.device, self.request) = (connection, id, device, request)
    }
}

/// The result of such a call.
package enum CallRelayAnswer: Sendable {
    case accepted
    /// Entries in their order; and whether there are more.
    case entries([CallRelay<JSONFragment>.Entry], more: Bool)
    case refused(CallRelayRefusal)
    /// The gateway's store has failed.
    case unavailable
}
