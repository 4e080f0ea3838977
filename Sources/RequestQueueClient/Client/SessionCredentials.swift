// Storage of session keys between two logins.

import Foundation
import RequestQueue

/// Where the queue keeps session keys.
public enum SessionCredentials: Sendable {
    /// In memory only: after a restart the requests of a tenant wait for its next login.
    case memory
    /// In the store as well, sealed, so that requests are sent after a restart without a login.
    case sealed(any SessionSealing)
}

/// Seals session keys with a key of the application's own, such as one in the system's key chain.
public protocol SessionSealing: Sendable {
    /// Encrypts, with the tenant as associated data.
    ///
    /// - Throws: any error; the session key is then kept in memory only.
    func seal(_ plaintext: [UInt8], tenant: String) throws -> [UInt8]

    /// Decrypts, with the tenant as associated data.
    ///
    /// - Throws: any error, if the bytes were not sealed for this tenant; its requests then wait for a login.
    func open(_ sealed: [UInt8], tenant: String) throws -> [UInt8]
}

extension SessionKey {
    /// The plaintext form that is sealed: the header fields, and after them the part of the query if there is one.
    package var bytes: [UInt8] { RequestForm.encode(headers) + (query.map { Array($0.utf8) } ?? []) }

    /// The reverse of ``bytes``; nil if the bytes are damaged.
    package init?(bytes: [UInt8]) {
        guard let (headers, rest) = RequestForm.decodeHeaders(beginning: bytes) else { return nil }
        let query = rest.isEmpty ? nil : String(validating: rest, as: UTF8.self)
        guard query != nil || rest.isEmpty else { return nil }
        self.init(headers: headers, query: query)
    }
}

extension SessionCredentials {
    /// The session keys among sealed ones. Those that cannot be opened are left out.
    func keys(in sessions: [ExactText: [UInt8]]) -> [ExactText: SessionKey] {
        guard case .sealed(let sealer) = self else { return [:] }
        var keys: [ExactText: SessionKey] = [:]
        for (tenant, sealed) in sessions {
            keys[tenant] = (try? sealer.open(sealed, tenant: tenant.text)).flatMap(SessionKey.init(bytes:))
        }
        return keys
    }

    /// The sealed form for the store; nil if the key is not stored.
    func sealed(_ key: SessionKey?, tenant: String) -> [UInt8]? {
        guard case .sealed(let sealer) = self, let key else { return nil }
        return try? sealer.seal(key.bytes, tenant: tenant)
    }

    var isStored: Bool {
        if case .sealed = self { return true }
        return false
    }
}
