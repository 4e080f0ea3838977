// Direct connections as chats and the messenger have them.

/// What came of the attempts to connect to all devices of a person.
public struct P2PBuildResult: Sendable {
    /// The connections that are open, those from before included.
    public let clients: [P2PClient]
    /// Why there is no connection with the other devices.
    public let failures: [DeviceId: P2PError]
}

extension PrivateChat {
    /// Connects directly to all devices of the person, in the chat with oneself to the own other devices.
    ///
    /// A device that cannot be reached holds up no other one. Each factory has ``P2PSettings/connectTime``, in their
    /// order.
    ///
    /// - Parameter preferredTransportIdentifier: of the factory to be tried first; nil for the order of registration.
    /// - Throws: ``P2PError``: `keysMissing` if no keys were exchanged with the person yet, and they are read then;
    ///   or `noTransport`.
    @discardableResult
    public func buildP2PConnections(
        preferredTransportIdentifier: String? = nil
    ) async throws -> P2PBuildResult {
        let connections = messenger.p2p
        let devices = connections.devices(of: username)
        guard !devices.isEmpty || username == messenger.username else {
            messenger.want(keysOf: username.raw)
            throw P2PError.keysMissing
        }
        let results = await withTaskGroup(of: (DeviceId, Result<P2PClient, P2PError>).self) { group in
            for device in devices {
                group.addTask { [username] in
                    do throws(P2PError) {
                        let address = P2PAddress(username: username, deviceId: device)
                        let client = try await connections.connect(
                            to: address, preferred: preferredTransportIdentifier)
                        return (device, .success(client))
                    } catch {
                        return (device, .failure(error))
                    }
                }
            }
            var results: [DeviceId: Result<P2PClient, P2PError>] = [:]
            for await (device, result) in group { results[device] = result }
            return results
        }
        var failures: [DeviceId: P2PError] = [:]
        var clients: [P2PClient] = []
        for (device, result) in results.sorted(by: { $0.key < $1.key }) {
            switch result {
            case .success(let client): clients.append(client)
            case .failure(let error): failures[device] = error
            }
        }
        if clients.isEmpty, failures.values.contains(.noTransport) { throw P2PError.noTransport }
        return P2PBuildResult(clients: clients, failures: failures)
    }

    /// The open direct connections with devices of the person.
    public func listOpenP2PConnections() -> [P2PClient] {
        messenger.listOpenP2PConnections().filter { $0.username == username }
    }

    /// Shows the person whether this one is typing, over the direct connections that are open.
    ///
    /// It never goes over the server: without an open connection it does nothing.
    public func setTyping(_ isTyping: Bool) async {
        for client in listOpenP2PConnections() {
            try? await client.updateStatus(flags: isTyping ? .isTyping : [])
        }
    }
}

extension CypherMessenger {
    /// All open direct connections.
    public func listOpenP2PConnections() -> [P2PClient] { p2p.openClients.filter(\.isConnected) }
}
