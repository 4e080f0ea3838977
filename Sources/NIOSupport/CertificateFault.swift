// Why the backend's certificate is rejected. A retry does not help, so it must not look like an outage.

package import NIOCore
import NIOSSL

/// A certificate of the backend that cannot be verified.
package struct CertificateFault: Error, CustomStringConvertible {
    package enum Reason: Equatable, Sendable {
        /// It is for another host.
        case otherName
        case expired
        case notYetValid
        /// No trusted authority has signed it.
        case unknownIssuer
    }

    package var reason: Reason
    package var host: String

    /// - Parameters:
    ///   - error: the error that ended the TLS handshake.
    ///   - now: in milliseconds since 1970.
    /// - Returns: nil if the handshake failed for another reason.
    package init?(_ error: any Error, host: String, _ channel: any Channel, now: Int64) {
        self.host = host
        if let error = error as? NIOSSLExtraError, error == .failedToValidateHostname {
            reason = .otherName
            return
        }
        // BoringSSL gives one code for all of these; the dates tell some apart.
        guard "\(error)".contains("CERTIFICATE_VERIFY_FAILED") else { return nil }
        let certificate = try? channel.pipeline.syncOperations.nioSSL_peerCertificate()
        reason = Self.reason(from: certificate.map { ($0.notValidBefore, $0.notValidAfter) }, now: now / 1000)
    }

    /// - Parameter dates: in seconds since 1970.
    private static func reason(from dates: (Int, Int)?, now: Int64) -> Reason {
        guard let dates else { return .unknownIssuer }
        if Int64(dates.1) < now { return .expired }
        return Int64(dates.0) > now ? .notYetValid : .unknownIssuer
    }

    /// For logs.
    package var description: String {
        "the certificate of \(host) is not accepted: \(words). "
            + "If the network has an authority of its own, name its file: upstream.tls.ca"
    }

    private var words: String {
        switch reason {
        case .otherName: "it is for another name"
        case .expired: "it has expired"
        case .notYetValid: "it is not valid yet, or the clock of this computer is wrong"
        case .unknownIssuer: "no authority that is trusted here has signed it"
        }
    }

    /// The text for the client whose connection ends.
    package func line(inSidecar: Bool) -> String {
        inSidecar
            ? "the certificate of \(host) is not accepted: \(words). Nothing was sent, and trying again does not help. If the "
                + "network has an authority of its own, start the sidecar with --ca FILE."
            : "the gateway does not accept the certificate of the chat server: \(words). Trying again does not help: tell the "
                + "operator of the gateway."
    }
}
