import HTTPServer
import NIOSSL
import PeerKit

/// A certificate, and both ends of TLS with it.
struct TLSRig {
    private let scratch: ScratchDirectory
    let certificate: Certificate
    /// For a listener that offers what the gateway's own offer.
    let listener: NIOSSLContext

    init(names: String = "DNS:localhost,IP:127.0.0.1") throws {
        scratch = try ScratchDirectory()
        certificate = try Certificate(in: scratch, names: names)
        let chain = try NIOSSLCertificate.fromPEMFile(certificate.certificatePath).map {
            NIOSSLCertificateSource.certificate($0)
        }
        let key = try NIOSSLPrivateKey(file: certificate.keyPath, format: .pem)
        var options = TLSConfiguration.makeServerConfiguration(certificateChain: chain, privateKey: .privateKey(key))
        options.applicationProtocols = HTTPServer.protocols
        listener = try NIOSSLContext(configuration: options)
    }

    /// A client's end that believes the certificate.
    func trust(_ protocols: [String] = []) throws -> NIOSSLContext {
        var options = TLSConfiguration.makeClientConfiguration()
        options.trustRoots = .file(certificate.certificatePath)
        options.applicationProtocols = protocols
        return try NIOSSLContext(configuration: options)
    }
}
