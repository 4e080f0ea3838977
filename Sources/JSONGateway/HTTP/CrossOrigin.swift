// The CORS protocol for answers of the gateway's own. WHATWG Fetch, section 3.3.

package import HTTPCodec

/// The web pages that may read the gateway's own answers. Answers of the backend keep the backend's fields.
package struct CrossOrigin: Sendable, Equatable {
    package enum Origins: Sendable, Equatable {
        /// `*`: every page.
        case any
        /// As browsers write them in `Origin`: `https://chat.example.org`.
        case listed(Set<String>)
    }

    package var origins: Origins
    /// Whether pages may send cookies and read the answers. Only with listed origins.
    package var allowsCredentials: Bool

    package init(origins: Origins, allowsCredentials: Bool = false) {
        (self.origins, self.allowsCredentials) = (origins, allowsCredentials)
    }

    /// Ours: how long a browser may cache the answer to a preflight, in seconds.
    private static let preflightAge = 86_400

    /// Adds the fields that let a page read an answer, unless the backend has set them.
    ///
    /// - Parameter request: the fields of the request; nil if no request could be read.
    package func allow(_ head: inout ResponseHead, for request: HeaderFields?) {
        guard head.headers.first("Access-Control-Allow-Origin") == nil else { return }
        switch origins {
        case .any: head.headers.add("Access-Control-Allow-Origin", "*")
        case .listed(let origins):
            // Caches must not serve the answer for one page to another.
            head.headers.add("Vary", "Origin")
            let claimed = request?["Origin"] ?? []
            guard claimed.count == 1, origins.contains(claimed[0]) else { return }
            head.headers.add("Access-Control-Allow-Origin", claimed[0])
            if allowsCredentials { head.headers.add("Access-Control-Allow-Credentials", "true") }
        }
        if head.headers.first("Retry-After") != nil { head.headers.add("Access-Control-Expose-Headers", "Retry-After") }
    }

    /// Returns the answer to a preflight for the control plane, which does not reach the backend.
    ///
    /// - Parameter credentials: the places of credentials in requests.
    package func preflight(for request: HeaderFields, credentials: [AccountSource.Credential]) -> ResponseHead {
        var head = ResponseHead(204)
        allow(&head, for: request)
        guard head.headers.first("Access-Control-Allow-Origin") != nil else { return head }
        let names = credentials.compactMap { if case .header(let name) = $0 { name } else { nil } }
        head.headers.add("Access-Control-Allow-Methods", ControlRoute.methods.joined(separator: ", "))
        head.headers.add("Access-Control-Allow-Headers", (names + ["Content-Type"]).joined(separator: ", "))
        head.headers.add("Access-Control-Max-Age", "\(Self.preflightAge)")
        return head
    }

    /// Returns the answer to a preflight that the backend has not answered; nil for pages that the mapping does not list.
    ///
    /// Browsers hide the answer to a request whose preflight failed, and so the gateway's words about the outage. The
    /// answer is not cached, because only the backend decides about its own routes.
    package func standIn(for request: HeaderFields) -> ResponseHead? {
        var head = ResponseHead(204)
        allow(&head, for: request)
        let methods = request["Access-Control-Request-Method"]
        guard head.headers.first("Access-Control-Allow-Origin") != nil, methods.count == 1 else { return nil }
        head.headers.add("Access-Control-Allow-Methods", methods[0])
        let names = request["Access-Control-Request-Headers"]
        if !names.isEmpty { head.headers.add("Access-Control-Allow-Headers", names.joined(separator: ", ")) }
        head.headers.add("Access-Control-Max-Age", "0")
        return head
    }

    /// Whether the mapping lets pages of an origin use the browser's logins.
    fileprivate func trusts(_ origin: String) -> Bool {
        guard allowsCredentials, case .listed(let origins) = origins else { return false }
        return origins.contains(origin)
    }
}

extension Mapping {
    /// Returns the head with the fields that let web pages read the answer.
    package func readable(_ head: ResponseHead, for request: HeaderFields?) -> ResponseHead {
        var head = head
        crossOrigin?.allow(&head, for: request)
        return head
    }

    /// Whether a page sends a request that is neither of the backend's own origin nor listed with `credentials`.
    ///
    /// Browsers add cookies to requests of every page. Clients that are no browsers send none of these fields.
    package func isOfForeignPage(_ request: HeaderFields) -> Bool {
        let (origins, sites) = (request["Origin"], request["Sec-Fetch-Site"])
        if origins.count == 1, crossOrigin?.trusts(origins[0]) == true { return false }
        // Pages cannot set this field. Fetch Metadata, section 2.4; `none` is a person's own navigation.
        if !sites.isEmpty { return !(sites == ["same-origin"] || sites == ["none"]) }
        guard let origin = origins.first else { return false }
        let hosts = request["Host"]
        guard origins.count == 1, hosts.count == 1, let mark = origin.firstRange(of: "://") else { return true }
        // The scheme is unknown where a proxy holds the certificate.
        return origin[mark.upperBound...].lowercased() != hosts[0].lowercased()
    }
}
