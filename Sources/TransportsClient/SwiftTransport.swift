// Transports and connections of Swift for code in another language: tables of C functions around a Swift object.

import CTransports
import Foundation
public import TransportsCore

extension Transport {
    /// The transport for code in another language. It keeps the Swift object alive.
    public func toCore() -> ClientTransport {
        let handle = pawl_client_transport(
            object: SwiftObject<any Transport>.retained(self), table: transportTable.pointer)
        return ClientTransport(trusting: handle)
    }
}

extension Connection {
    /// The connection for code in another language. It keeps the Swift object alive.
    public func toCore() -> ClientConnection {
        let handle = pawl_client_connection(
            object: SwiftObject<any Connection>.retained(self), table: connectionTable.pointer)
        return ClientConnection(trusting: handle)
    }
}

private let transportTable = StaticTable(
    pawl_client_transport_table(
        table: pawl_table(
            abi: UInt32(PAWL_TRANSPORTS_ABI), size: UInt32(MemoryLayout<pawl_client_transport_table>.size),
            retain: { SwiftObject<any Transport>.retain($0) }, release: { SwiftObject<any Transport>.release($0) }),
        id: { object, value, error in
            guard let transport = SwiftObject<any Transport>.value(object) else {
                error?.pointee = pawl_error(.weird(reason: "no transport"))
                return false
            }
            value?.pointee = pawl_buffer(copying: Data(transport.id.utf8))
            return true
        },
        status: { object, proto, completion in
            let transport = SwiftObject<any Transport>.value(object)
            let name = proto.copy.flatMap { String(validating: $0, as: UTF8.self) }
            return SwiftOperation.start(completion) {
                guard let transport, let name else { return .failure(.weird(reason: "the protocol is no UTF-8")) }
                return switch await transport.status(proto: ProtocolID(name)) {
                case .ready: .success(Data())
                case .unavailable(let reason): .failure(.unavailable(reason: reason))
                case .error(let error): .failure(error)
                }
            }
        },
        connect: { object, proto, value, error in
            guard let transport = SwiftObject<any Transport>.value(object),
                let name = proto.copy.flatMap({ String(validating: $0, as: UTF8.self) })
            else {
                error?.pointee = pawl_error(.weird(reason: "the protocol is no UTF-8"))
                return false
            }
            value?.pointee = transport.connect(proto: ProtocolID(name)).toCore().retained()
            return true
        }))

private let connectionTable = StaticTable(
    pawl_client_connection_table(
        table: pawl_table(
            abi: UInt32(PAWL_TRANSPORTS_ABI), size: UInt32(MemoryLayout<pawl_client_connection_table>.size),
            retain: { SwiftObject<any Connection>.retain($0) }, release: { SwiftObject<any Connection>.release($0) }),
        send: { object, request, completion in
            let connection = SwiftObject<any Connection>.value(object)
            let data = request.copy
            return SwiftOperation.start(completion) {
                guard let connection, let data else { return .failure(.weird(reason: "no request")) }
                return await connection.send(request: data).map { Data() }
            }
        },
        receive: { object, completion in
            let connection = SwiftObject<any Connection>.value(object)
            return SwiftOperation.start(completion) {
                guard let connection else { return .failure(.weird(reason: "no connection")) }
                return await connection.receive()
            }
        }))
